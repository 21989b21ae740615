"""Layers that do not divide evenly over stages, by hand for each rule."""

from __future__ import annotations

import pytest

from windtunnel.spec import load_model
from windtunnel.spec.shapes import by_work, head_in_layers, uneven


@pytest.mark.parametrize(
    ("layers", "stages", "greedy", "further", "layout"),
    [
        (126, 16, False, False, (7, *[8] * 14, 7)),  # Llama 3 405B
        (70, 12, False, False, (5, *[6] * 10, 5)),  # BLOOM
        (126, 16, False, True, (*[8] * 15, 6)),  # further tokens leave no room for the first rule
        (61, 16, False, True, (*[4] * 15, 1)),  # DeepSeek-V3
        (10, 4, True, False, (2, 3, 3, 2)),
        (9, 4, True, False, (3, 3, 3, 0)),
        (11, 4, False, False, (3, 3, 3, 2)),
        (9, 4, False, False, (3, 2, 2, 2)),
        (5, 4, True, False, (2, 2, 1, 0)),
        (6, 5, True, False, (2, 1, 1, 1, 1)),  # filled up, 2, 2, 2, 0, 0 would leave the last but one empty
        (4, 1, False, False, (4,)),
        (2, 4, False, False, (0, 1, 1, 0)),
        (2, 5, False, False, None),
        (2, 2, False, False, (1, 1)),
    ],
)
def test_uneven_layouts(layers: int, stages: int, greedy: bool, further: bool, layout: tuple[int, ...] | None) -> None:
    found = uneven(layers, stages, greedy, further)
    assert (found and found[0]) == layout
    assert layout is None or sum(layout) == layers


@pytest.mark.parametrize(
    ("layers", "stages", "head", "layout"),
    [
        (30, 4, 2.0, (8, 8, 8, 6)),  # 8 layers of work each
        (24, 4, 3.0, (7, 7, 7, 3)),  # 6.75 each: reached with the 7th, the 14th and the 21st layer
        (4, 2, 0.0, (2, 2)),
        (4, 3, 30.0, (2, 2, 0)),  # the head is worth more than all: it stands alone
        (5, 3, 30.0, (3, 2, 0)),
        (3, 1, 9.0, (3,)),
    ],
)
def test_layouts_by_work(layers: int, stages: int, head: float, layout: tuple[int, ...]) -> None:
    found = by_work(layers, stages, head)
    assert found is not None and found[0] == layout


def test_the_head_of_llama_8b_in_layers() -> None:
    """128,256 x 4,096 weights over 4 x 4,096 x 4,096 + 3 x 4,096 x 14,336."""
    assert head_in_layers(load_model("llama3-8b")) == pytest.approx(128256 / (4 * 4096 + 3 * 14336))
