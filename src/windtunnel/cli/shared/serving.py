"""Options of the verbs that serve a model."""

from __future__ import annotations

from typing import Annotated

import typer

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.cli.shared import complete

ModelArgument = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="A model of the catalogue, a config.json, or a name as on a hub.")
]
Machine = Annotated[str | None, typer.Option("--on", metavar="CLUSTER", help="The machine.", autocompletion=complete.machines)]
PromptLength = Annotated[str, typer.Option("--isl", metavar="TOKENS", help="Prompt length: N, LOW-HIGH, MEAN~CV or MEAN~CV<CAP.")]
OutputLength = Annotated[str, typer.Option("--osl", metavar="TOKENS", help="Output length, likewise.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of drawn lengths and arrivals.")]

SPECULATE = "Drafted tokens: mtp, eagle or draft=MODEL, how many a pass, and the tokens that a pass yields (or rate)."
DRAFTED = "mtp,drafts=N,accepted=TOKENS"


def check_given(model: str | None, on: str | None) -> tuple[str, str]:
    """Model and machine; SpecError for one that was not written."""
    if model is None:
        allowed = "a model of the catalogue, a config.json, or a name as on a hub"
        raise SpecError("MODEL", Nothing(), allowed, "Such as llama3.1-8b.")
    if on is None:
        raise SpecError("--on", Nothing(), "a cluster of the catalogue or a file", "Write --on h100-ib.")
    return model, on


def words_of(text: str) -> list[str]:
    """Words with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]
