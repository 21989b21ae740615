"""Which software ran: the framework's name from its column, the release from the date that the source carries.

The date is read from the citation itself (an arXiv number, a container tag, a month, a file name with a date); the newest release
that the catalogue knows and that is not younger than it is used, else the oldest.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.reality.adapters import is_lora
from windtunnel.reality.recipes import mixture_recipe
from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped
from windtunnel.spec import Cluster, Model, Runtime, load_runtime, names

RELEASES: dict[str, tuple[tuple[tuple[int, int], str, str], ...]] = {
    "megatron": (
        ((2019, 9), "megatron-lm", "2.0"),
        ((2022, 5), "megatron-lm", "3.0"),
        ((2023, 9), "megatron-lm", "23.09"),
        ((2024, 4), "megatron-core", "0.8"),
        ((2025, 6), "megatron-core", "0.12"),
    ),
}
"""Frameworks whose catalogue entry changes its name over time: (first year and month, entry, version), oldest first.
Core 0.6 of April 2024 had the overlaps of 0.8 (its release notes, from memory)."""

_SHARDS_PARAMETERS = (2024, 1)
"""Before that Megatron-LM did not shard parameters; runs with it that did so used DeepSpeed's ZeRO-3."""

_COALESCED_SINCE, _COALESCES = (2021, 7), "0.5"
"""When ZeRO-3 began to gather parameters together (DeepSpeed pull request 1188), and the release that has it."""

_BF16_OPTIMIZER = {"megatron-deepspeed": (2022, 2, 28)}
"""Frameworks that trained in fp16 alone until (year, month, day): DeepSpeed's BF16Optimizer, which keeps fp32 gradients, came with
BLOOM's last planning runs (bigscience chronicles-prequel.md). Tables made of their runs print the final precision for all."""

DATED = {"nemo": "{short:02d}.{month:02d}", "torchtitan": "{year}.{month:02d}"}
"""Frameworks whose versions are dates."""

BEFORE_MEGASCALE = ("megatron-lm", "23.09")
"""The release that MegaScale's authors compare with, and changed step by step (arXiv:2402.15627, section 6.1)."""

FEATURES: dict[str, dict[str, Any]] = {
    "tp_overlap": {"overlap_tp": True},
    "pp_overlap": {"overlap_p2p": True},
    "dp_overlap": {"overlap_grad_reduce": True, "overlap_param_gather": True},
    "efficient_operators": {"attention": "flash", "attention_library": "fa2"},
    "data_pipeline": {"data": {"reader": "node", "overlap": "gradient_sync", "read_back": False}},
    "lamb": {"optimizer": "lamb"},
}
"""What a row's `features` switch on in the runtime; those of the network are in `architecture`. Of the efficient operators that the
paper lists, Megatron-LM had fused layer norm and GeLU before."""

_BLOCKING = ("tr11-176B-ml", 320)
"""BLOOM's jobs of 40 nodes and more hung unless CUDA_LAUNCH_BLOCKING=1 was set (chronicles-prequel.md, "Hanging Issue")."""

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


def software_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) that the row's source names, or None. A year alone counts as its middle."""
    text = row.source or ""
    if found := _CONTAINER.search(text):
        year, month = (part for part in found.groups() if part is not None)
        return 2000 + int(year), int(month)
    if found := _MONTH_YEAR.search(text):
        return int(found.group(2)), _MONTHS[found.group(1).lower()]
    if found := _ARXIV.search(text):
        return 2000 + int(found.group(1)), max(1, min(12, int(found.group(2))))
    if found := _YEAR_MONTH.search(text):
        return int(found.group(1)), int(found.group(2))
    if found := _YEAR.search(text):
        return int(found.group(1)), 6
    return None


def catalogue_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) of a framework that the catalogue knows in one version named by its year, for a source without a date."""
    release = release_of(row, None)
    if release is None or release[0] in DATED or (row.framework or "").lower() in RELEASES:
        return None
    found = _YEAR.search(load_runtime(release[0]).version)
    return (int(found.group(1)), 6) if found else None


def runtime_of(
    row: TrainingRow, software: tuple[int, int] | None, assumed: list[str], model: Model, cluster: Cluster
) -> Runtime | Skipped:
    """The framework's defaults at that date, with what the row states of precision, overlap, launch mode and features over them."""
    release = release_of(row, software)
    if release is None:
        return Skipped(f"framework {row.framework or 'not published'!r} is not in the catalogue")
    fields: dict[str, Any] = {"precision": _precision(row, software, assumed)}
    name, version = release
    features = set(filter(None, (row.features or "").split(";")))
    if name == "megascale" and features and not features >= FEATURES.keys():  # some of its parts over the code that it began with
        name, version = BEFORE_MEGASCALE
    if version:
        fields["version"] = version
    if (name, version) == BEFORE_MEGASCALE and row.recompute != "selective":
        fields |= {"attention": "flash", "attention_library": "fa1"}
        assumed.append("FlashAttention 1 (not published; Megatron-LM's option then, which leaves selective recompute out)")
    for feature in features & FEATURES.keys():
        fields |= FEATURES[feature]
    for column, names_of in (
        ("overlap_tp", ("overlap_tp",)),
        ("overlap_dp", ("overlap_grad_reduce", "overlap_param_gather")),
        ("overlap_pp", ("overlap_p2p",)),
    ):
        said = getattr(row, column)
        if said in ("y", "n"):
            fields |= dict.fromkeys(names_of, said == "y")
    notes = (row.notes or "").lower()
    if "torch.compile" in notes:
        fields["launch"] = "compile"
    elif re.search(r"\beager\b", notes):
        fields["launch"] = "eager"
    if row.framework == "nemo" and fields["precision"] == "fp8" and is_lora(row):
        fields["fp8_weight_cache"] = False
        assumed.append("8-bit weights without a transposed copy (disable_parameter_transpose_cache of NeMo's fine-tuning recipes)")
    if _BLOCKING[0] in (row.source or "") and (row.gpus or 0) >= _BLOCKING[1]:
        fields["launch_blocking"] = True
        assumed.append("CUDA_LAUNCH_BLOCKING=1: the team's large jobs hung without it")
    if name == "nemo" and version and model.experts is not None:
        dated = software or (0, 0)
        recipe = mixture_recipe(row, (dated[0] - 2000, dated[1]), model, cluster)
        fields = recipe | fields
        assumed.append(
            "as NVIDIA's recipes of that container set it: " + ", ".join(f"{field} {value}" for field, value in recipe.items())
        )
    runtime = load_runtime(name, **fields)
    assumed.append(f"software {name} {runtime.version}".rstrip())
    return _half(runtime)


def _precision(row: TrainingRow, software: tuple[int, int] | None, assumed: list[str]) -> str | None:
    """The row's precision, or fp16 where its date (a note's month and day in the software's year) is before the framework had
    bf16."""
    since = _BF16_OPTIMIZER.get((row.framework or "").lower())
    found = _MONTH_DAY.search(row.notes or "")
    if row.precision != "bf16" or since is None or software is None or found is None:
        return row.precision
    if (software[0], int(found.group(1)), int(found.group(2))) >= since:
        return row.precision
    assumed.append(f"fp16 with 16-bit gradients: the run of {found.group()} is older than the framework's bf16 optimizer")
    return "fp16"


def release_of(row: TrainingRow, software: tuple[int, int] | None) -> tuple[str, str | None] | None:
    """(catalogue name, version or None for the entry's own) of the row's framework at that date; None if the catalogue lacks it."""
    said = (row.framework or "").lower()
    if said == "megatron" and row.sharding in ("fsdp", "zero3") and software is not None and software < _SHARDS_PARAMETERS:
        return "deepspeed", _COALESCES if software >= _COALESCED_SINCE else "0.3"
    if said in RELEASES:
        releases = RELEASES[said]
        if software is None:
            return releases[-1][1:]
        return [release[1:] for release in releases if release[0] <= software or release is releases[0]][-1]
    if said not in names("frameworks"):
        return None
    form = DATED.get(said)
    return said, form.format(year=software[0], short=software[0] - 2000, month=software[1]) if form and software else None


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
