"""The software of a row: the framework's name from its column, the release from the date in the source.

The date is parsed from the citation: an arXiv number, a container tag, a month, a file name with a date. Of the releases in
the catalogue, the newest that is not after that date is used, else the oldest. Facts of publications about their software are in
`publications`.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.reality.rows import publications
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import Cluster, Model, Runtime, load_runtime, names
from windtunnel.spec.mixer import MIXERS

_MONTHS = {
    name: number
    for number, name in enumerate(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1)
}
_CONTAINER = re.compile(r"(?:ngc|nemo |bridge )(\d\d)\.(\d\d)|(\d\d)\.(\d\d)(?:\.\d+)? container", re.IGNORECASE)
_MONTH_YEAR = re.compile(r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?[ _-]?(20[12]\d)", re.IGNORECASE)
_ARXIV = re.compile(r"arxiv:(\d\d)(\d\d)\.\d{4,5}", re.IGNORECASE)
_YEAR_MONTH = re.compile(r"(?<!\d)(20[12]\d)-?(0[1-9]|1[0-2])(?!\d)")
_MONTH_DAY = re.compile(r"(?<![\d-])(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?![\d-])")
_YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")
MIDDLE = 6
"""A year alone counts as its middle month."""


def software_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) that the row's source names, or None."""
    text = row.source or ""
    if match := _CONTAINER.search(text):
        year, month = (part for part in match.groups() if part is not None)
        return 2000 + int(year), int(month)
    if match := _MONTH_YEAR.search(text):
        return int(match.group(2)), _MONTHS[match.group(1).lower()]
    if match := _ARXIV.search(text):
        return 2000 + int(match.group(1)), max(1, min(12, int(match.group(2))))
    if match := _YEAR_MONTH.search(text):
        return int(match.group(1)), int(match.group(2))
    if match := _YEAR.search(text):
        return int(match.group(1)), MIDDLE
    return None


def catalogue_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) of a framework that the catalogue knows in one version named by its year, for a source without a date."""
    release = release_of(row, None)
    if release is None or release[0] in publications.dated_versions() or (row.framework or "").lower() in publications.releases():
        return None
    match = _YEAR.search(load_runtime(release[0]).version)
    return (int(match.group(1)), MIDDLE) if match else None


def dates_of(row: TrainingRow, software: tuple[int, int] | None) -> dict[str, str]:
    """`date` and `day` of a context (`publications.FOUND_OUT`); empty without a date of the software."""
    if software is None:
        return {}
    dates = {"date": f"{software[0]}-{software[1]:02d}"}
    if match := _MONTH_DAY.search(row.notes or ""):
        dates["day"] = f"{software[0]}-{match.group(1)}-{match.group(2)}"
    return dates


def runtime_of(
    row: TrainingRow, software: tuple[int, int] | None, assumed: list[str], model: Model, cluster: Cluster
) -> Runtime | Skipped:
    """The framework's defaults at that date, overridden by the publication's recipe, then by the row."""
    release = release_of(row, software)
    if release is None:
        return Skipped(f"framework {row.framework or 'not published'!r} is not in the catalogue")
    name, version = release
    context = context_of(row, software, model, cluster) | {"built_framework": name, "built_version": version}
    recipe: dict[str, Any] = {}
    for fact in publications.facts_for(context):
        recipe |= fact.runtime
        if fact.runtime:
            fields = ", ".join(f"{field} {value}" for field, value in fact.runtime.items())
            assumed.append(fact.assumed or f"{fields} (what is known of the publication)")
    stated: dict[str, Any] = {"precision": row.precision} | ({"version": version} if version else {})
    for column, switches in (
        ("overlap_tp", ("overlap_tp",)),
        ("overlap_dp", ("overlap_grad_reduce", "overlap_param_gather")),
        ("overlap_pp", ("overlap_p2p",)),
    ):
        answer = getattr(row, column)
        if answer in ("y", "n"):
            stated |= dict.fromkeys(switches, answer == "y")
    runtime = load_runtime(name, **recipe | stated)
    assumed.append(f"software {name} {runtime.version}".rstrip())
    return _half(runtime)


def context_of(row: TrainingRow, software: tuple[int, int] | None, model: Model, cluster: Cluster) -> dict[str, Any]:
    """Derived properties for conditions, after model and machine are known (`publications.FOUND_OUT`)."""
    ep, vpp, pp = row.ep or 1, row.vpp or 1, row.pp or 1
    experts = model.experts is not None
    overlappable = ep > 1 and (vpp > 1 or pp == 1) and row.recompute != "full"
    link = cluster.node.host_link
    return {
        **publications.columns_of(row),
        **dates_of(row, software),
        "lora": model.lora is not None,
        "gpu_architecture": cluster.node.gpu.architecture,
        "host_link": None if link is None else link.kind,
        "experts_built": experts,
        "hybrid": experts and any(MIXERS[kind.mixer].state_space for kind in model.kinds),
        "narrow_experts": bool(model.moe_latent),
        "linear_bias": model.linear_bias,
        "router_groups": model.router_groups,
        "overlappable": overlappable,
        "beyond_domain": overlappable and vpp > 1 and ep > cluster.node.domain,
    }


def release_of(row: TrainingRow, software: tuple[int, int] | None) -> tuple[str, str | None] | None:
    """(catalogue name, version or None for the entry's own) of the row's framework at that date; None if the catalogue lacks it."""
    name = (row.framework or "").lower()
    context = publications.columns_of(row) | dates_of(row, software) | {"framework": name}
    chosen = [fact.software for fact in publications.facts_for(context) if fact.software is not None]
    if chosen:
        return chosen[-1].framework, chosen[-1].version
    if name in (released := publications.releases()):
        releases = released[name]
        if software is None:
            return releases[-1][1:]
        date = dates_of(row, software)["date"]
        return [release[1:] for release in releases if release[0] <= date or release is releases[0]][-1]
    if name not in names("frameworks"):
        return None
    form = publications.dated_versions().get(name)
    return name, form.format(year=software[0], short=software[0] - 2000, month=software[1]) if form and software else None


def _half(runtime: Runtime) -> Runtime:
    """Weights, and 16-bit gradients, follow the row's 16-bit format: fp16 and bf16 cost the same and are never mixed."""
    if runtime.precision not in ("fp16", "bf16"):
        return runtime
    update = {
        field: runtime.precision
        for field in ("weight_dtype", "gradient_dtype", "reduce_dtype")
        if getattr(runtime, field) in ("fp16", "bf16")
    }
    return runtime.model_copy(update=update)
