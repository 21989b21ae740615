"""Ranks of a watched run over time, and in the mesh in which one can be picked; fleet.js draws both."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from windtunnel.draw.page.frame import part, told_script
from windtunnel.sheet.blocks import Picture

Words = Callable[[str], str]

ABOUT = (
    "blue: shorter than its equals · pale: as long · red: longer (full colour: 30 % and more) · empty: no record. "
    "A click picks the rank below."
)

WORDS = (
    "step {number}",
    "One row a machine: its slowest rank.",
    "The {shown} slowest of {all} machines.",
    "The {shown} slowest of {all} ranks.",
    "no record",
    "{excess}; usual {usual}",
    "unknown",
    "rank {rank} on {machine}, from step {step}: {told}",
    "an unknown machine",
    "Rank {rank} on {machine}",
    ", own work {excess} against its equals",
    "{axis} {place} of {count}: ",
    "It waits for:",
    "It waits for nobody.",
    " {ms} ms a step",
    "It hangs, waiting for:",
    " in {call}",
    "What flows, a step:",
    "{name} of {ranks} ranks: {calls} calls, {bytes}, {ms} ms",
    "own work",
    "gaps",
    "outside",
    "no core",
    "data",
    "forward",
    "backward",
    "optimizer",
)
"""What fleet.js says, and the names of its layers."""


def heat(picture: Picture, words: Words) -> Markup:
    """The heat map. `data`: `ranks`, `hosts`, the `host` of each rank, `steps` of columns, `layers` of cells, the `mesh`, `waits`,
    `groups` and `hang` of ranks, those that are `named`, and the `excess` of each."""
    return part("heat", words("What is shown"), words(ABOUT)) + told_script(
        "data", {**picture.data, "words": {text: words(text) for text in WORDS}}
    )


def mesh(_: Picture, words: Words) -> Markup:
    """The mesh, of the data of the heat map."""
    return part("mesh", words("Rank"))
