"""Shared by the verbs that measure: durations, lists of numbers, the choice of the model, and the guard against slow CPU runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.spec import Model
from windtunnel.workload import parameter_count

if TYPE_CHECKING:
    from windtunnel.profile.case import Case

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}

CPU_PARAMETERS = 1e9
"""Parameters above which a model is measured on a CPU only on request: a layer of 8B takes minutes there."""


def refuse_cpu(models: Iterable[Model]) -> None:
    """SpecError for a large model on a CPU that the user did not request."""
    for model in models:
        if (count := parameter_count(model)) > CPU_PARAMETERS:
            raise SpecError(
                "--device",
                "auto",
                "a GPU, or --device cpu",
                f"There is no GPU here, and {model.name} has {count / 1e9:.3g} billion parameters: on this CPU it would take long.",
            )


def duration(text: str | None) -> float | None:
    """Seconds of `8m`, `90s`, `2h` or `45`; None for nothing. SpecError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(s|m|min|h|)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise SpecError("--budget", text, "a time such as 8m, 90s or 2h")
    return float(match[1]) * UNITS[match[2]]


def numbers(option: str, text: str) -> tuple[int, ...]:
    """`4096,8192` as it stands, `2048:16384` doubling; empty for nothing. SpecError for anything else."""
    first, colon, last = text.partition(":")
    ends = (first, last) if colon else words(text)
    if not all(word.strip().isdigit() and int(word) > 0 for word in ends):
        raise SpecError(option, text, "whole numbers such as 4096,8192, or a range such as 2048:16384")
    if not colon:
        return tuple(int(word) for word in ends)
    low, high = int(first), int(last)
    if low > high:
        raise SpecError(option, text, "a range from a smaller to a larger number", f"Type {high}:{low}.")
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= 2
    return tuple(sizes)


def of_model(name: str, sets: list[str] | None, job: str | None, options: dict[str, str], dtype: str) -> list[Case]:
    from windtunnel.formats import import_job
    from windtunnel.jobs.sources import is_foreign
    from windtunnel.profile.case import Case, check_case
    from windtunnel.spec import load_model

    if job is not None:
        raise SpecError("--model", name, "either a JOB or --model")
    for text in sets or ():
        if not text.strip().startswith("model."):
            raise SpecError(
                "--set", text, "a field of the model, such as model.hidden=256", "Sizes of the batch have their own options."
            )
    changes = [text.strip().removeprefix("model.") for text in sets or ()]
    loaded = load_model(import_job(Path(name)).model.model_dump(exclude_none=True) if is_foreign(name) else name, changes)
    if changes and not any(change.startswith("name=") for change in changes):
        loaded = loaded.model_copy(update={"name": f"{loaded.name}-changed"})
    if not options["--seq"]:
        raise SpecError("--seq", Nothing(), "tokens of a sequence", "For example --seq 2048.")
    sizes = {option: numbers(option, text) for option, text in options.items()}
    return [
        check_case(Case(loaded, seq, batch, tp, dtype))
        for tp in sizes["--tp"]
        for batch in sizes["--micro-batch"]
        for seq in sizes["--seq"]
    ]


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
