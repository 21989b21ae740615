"""The software of a row: the framework's name, version and year from its column, the release from a date.

The date is that of the name ("megatron-bridge 26.02", "megatron (2022)"), else of the citation (an arXiv number, a container tag, a
month, a file name with a date), else the month in which the cited file's figures were committed, else the middle of the months
that the name stands for. Of the releases in the catalogue, the newest that is not after that date is used, else the oldest. Facts
of publications about their software are in `publications`.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.dataclasses import dataclass
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


_FLASH = r"flash[- ]?att(?:ention|n)"
ATTENTION: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    (re.compile(rf"\b(?:no|without) {_FLASH}", re.IGNORECASE), {"attention": "unfused"}),
    (re.compile(rf"\b{_FLASH}[- ]?v?3\b|\bfa3\b", re.IGNORECASE), {"attention": "flash", "attention_library": "fa3"}),
    (re.compile(rf"\b{_FLASH}[- ]?v?2\b|\bfa2\b", re.IGNORECASE), {"attention": "flash", "attention_library": "fa2"}),
    (re.compile(r"\bcudnn (?:fused )?attention", re.IGNORECASE), {"attention": "flash", "attention_library": "cudnn"}),
    (re.compile(rf"\b{_FLASH}\b", re.IGNORECASE), {"attention": "flash"}),
)
"""Words of notes for the attention of a run, the first that is there, and the fields of the runtime that they say."""

STAND_IN = "unnamed"
"""The catalogue's entry for a framework that it does not know."""

_CONTAINER_VERSION = re.compile(r"(?<![\d.])(2\d)\.(0[1-9]|1[0-2])(?![\d])")
_NUMBER = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)")
_REPOSITORY = re.compile(r"^[\w.-]+/([\w.-]+)(?=[ @]|$)")
"""A citation that begins with a repository: "pytorch/torchtune README.md"."""
_BRACKETS = re.compile(r"\([^)]*\)")


@dataclass(frozen=True)
class NamedFramework:
    """What a table's name of a framework says: the catalogue's name or a key of its releases, the version and the date beside it,
    and why that name stands for it (None where it is the name itself)."""

    name: str
    why: str | None = None
    version: str | None = None
    date: tuple[int, int] | None = None
    span: str | None = None
    """Key of `publications.spans`."""


def framework_named(published: str) -> NamedFramework:
    """The framework that a table means by a name, a version and a year: "neuronx (2.16.0)", "megatron (e156d2fe, 2022)"."""
    name = published.strip().lower().replace("_", "-")
    date = version = None
    if match := _CONTAINER_VERSION.search(name):
        date, version = (2000 + int(match.group(1)), int(match.group(2))), f"{match.group(1)}.{match.group(2)}"
    elif match := _NUMBER.search(name):
        version = match.group(1)
    elif match := _YEAR.search(name):
        date = (int(match.group(1)), MIDDLE)
    bare = _NUMBER.sub("", _CONTAINER_VERSION.sub("", _BRACKETS.sub("", name))).strip(" ,-")
    for candidate in dict.fromkeys((name, bare, bare.replace(" ", "-"), bare.split(" ")[0])):
        if (entry := _entry_of(candidate)) is not None:
            why = None if entry == name else f"framework {published} is the catalogue's {entry}"
            return NamedFramework(entry, why, version, date, candidate if candidate in publications.spans() else entry)
    what = f"framework {published!r} is not in the catalogue" if published else "framework not published"
    return NamedFramework(STAND_IN, f"{what}: taken as {STAND_IN}", None, date)


def framework_cited(source: str | None) -> str | None:
    """The framework whose own repository a citation begins with: figures of its documents are of its own runs."""
    match = _REPOSITORY.match(source or "")
    name = match.group(1).lower().replace("_", "-") if match else ""
    return name if name and _entry_of(name) is not None else None


def _entry_of(name: str) -> str | None:
    """The catalogue's entry, or key of its releases, with that name or spelling."""
    entries = (*publications.releases(), *names("frameworks"))
    if name in entries:
        return name
    return next((entry for entry, others in publications.spellings().items() if name in others and entry in entries), None)


def software_of(named: NamedFramework, row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) of the row's software, by the first of: its name, its source, the cited file, the catalogue's entry, the middle
    of what the name stands for; None where nothing says any."""
    return named.date or software_date(row) or document_date(row) or catalogue_date(row) or _middle(named.span)


def document_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) in which the figures of the file that the row cites were committed, or None."""
    months = [month for text, month in publications.documents().items() if text in (row.source or "")]
    return _parse(months[-1]) if months else None


def _middle(name: str | None) -> tuple[int, int] | None:
    if name not in (spans := publications.spans()):
        return None
    months = [12 * year + month - 1 for year, month in map(_parse, spans[name])]
    middle = sum(months) // 2
    return middle // 12, middle % 12 + 1


def _parse(month: str) -> tuple[int, int]:
    return int(month[:4]), int(month[5:7])


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
    stated: dict[str, Any] = {"precision": row.precision} | ({"version": version} if version else {}) | attention_said(row.notes)
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


def attention_said(notes: str | None) -> dict[str, str]:
    """Fields of the runtime that notes say of its attention: "flash attention 2", "no flash attention"."""
    return next((fields for words, fields in ATTENTION if words.search(notes or "")), {})


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
        "linear_bias": model.linear_bias,
        "router_groups": model.router_groups,
        "overlappable": overlappable,
        "beyond_domain": overlappable and vpp > 1 and ep > cluster.domain,
    }


def release_of(row: TrainingRow, software: tuple[int, int] | None) -> tuple[str, str | None] | None:
    """(catalogue name, version or None for the entry's own) of the row's framework at that date; None if the catalogue lacks it."""
    name, version = (row.framework or "").lower(), row.framework_version
    context = publications.columns_of(row) | dates_of(row, software) | {"framework": name}
    chosen = [fact.software for fact in publications.facts_for(context) if fact.software is not None]
    if chosen:
        return chosen[-1].framework, chosen[-1].version
    if name in (released := publications.releases()):
        releases = released[name]
        if version is not None and (entry := releases[-1][1]) not in publications.dated_versions():
            return entry, version
        if software is None:
            return releases[-1][1:]
        date = dates_of(row, software)["date"]
        return [release[1:] for release in releases if release[0] <= date or release is releases[0]][-1]
    if name not in names("frameworks"):
        return None
    form = publications.dated_versions().get(name)
    if form is None and version is not None and name in publications.numbered_entries():
        return name, version
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
