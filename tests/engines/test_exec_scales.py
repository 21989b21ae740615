"""Instances that stretch the operators of their template: each operator by the factor of its group in the instance's row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from windtunnel.base.errors import EngineError
from windtunnel.engine import Program, ProgramBuilder, run


def program(rows: list[list[float]], taken: list[int], tax: float = 0.0) -> Program:
    """One rank: a template of a 1 s and a 2 s operator in groups 1 and 2, once for each number in `taken`."""
    builder = ProgramBuilder(categories=1, compute_tax=tax)
    template = builder.add_template([1.0, 2.0], group=[1, 2])
    if rows:
        builder.add_factors(np.array(rows))
    rank = builder.rank()
    for _ in taken:
        rank.add(template)
    rank.scales = np.array(taken)
    return builder.build()


def test_each_operator_takes_its_groups_factor() -> None:
    timeline = run(program([[1.0, 1.0, 1.0], [9.0, 2.0, 3.0]], [0, 1, 0]))
    assert timeline.end.tolist() == [3.0, 3.0 + 2.0 + 6.0, 14.0]
    assert timeline.busy[0, 0, 0] == 14.0


def test_without_factors_nothing_is_stretched() -> None:
    assert run(program([], [0, 0])).makespan == run(program([[1.0, 1.0, 1.0]], [0, 0])).makespan == 6.0


def test_repetitions_and_the_tax_take_the_factor_too() -> None:
    """A transfer from 0 to 10 takes a quarter of the rate: (1 x 2 + 2 x 2) / 0.75."""
    builder = ProgramBuilder(categories=1, compute_tax=0.25)
    template = builder.add_template([1.0, 2.0], group=[1, 1])
    builder.add_factors(np.array([[1.0, 1.0], [1.0, 2.0]]))
    rank = builder.rank()
    rank.add_rendezvous(1, [(7, 10.0, 1)])
    rank.add(template)
    rank.scales = np.array([0, 1])
    assert run(builder.build()).end[1] == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("scale", np.array([0, 5, 0], np.int32), "scale of row 1 is 5"),
        ("scale", np.array([0], np.int32), "column scale has 1 rows; 3 were expected"),
        ("scales", np.array([1.0, 1.0, 1.0, 1.0, -2.0, 1.0]), "scales of row 4 is -2"),
        ("scales", np.ones(5), "a multiple of the 3 groups"),
        ("op_group", np.array([1, 3], np.int32), "op group of row 1 is 3"),
    ],
)
def test_wrong_columns_are_refused(column: str, value: np.ndarray, says: str) -> None:
    made = program([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]], [0, 1, 0])
    with pytest.raises(EngineError, match=says):
        run(replace(made, **{column: value}))
