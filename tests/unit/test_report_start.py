"""The line of a report on a slow start, and that it and `windtunnel fleet startup` point at each other."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import windtunnel as wt
from windtunnel.api.prediction_sheet import WORTH_A_LINE, start_line
from windtunnel.cli import main

PLAN = ["cluster.gpus=2048", "plan.dp=32", "plan.global_batch=768"]
SLOW = ["runtime.startup.store=tcp", "runtime.startup.sync=all_ranks"]


def printed(sets: list[str]) -> str:
    out = io.StringIO()
    wt.predict(wt.load("megascale-175b-12288", sets)).report(Console(file=out, width=200))
    return out.getvalue()


def test_a_slow_start_has_a_line() -> None:
    """MegaScale's 1,047 s at 2,048 GPUs, which one blocking thread and barriers of all ranks take."""
    text = printed([*PLAN, *SLOW])
    assert "start: 1,050 s until groups are set up over a tcp store (runtime.startup)" in text
    assert "windtunnel fleet startup" in text


def test_a_quick_start_has_none() -> None:
    quick = wt.predict(wt.load("megascale-175b-12288", [*PLAN, "runtime.startup.sync=members"]))
    assert 0.0 < quick.init_time_s < WORTH_A_LINE and start_line(quick) is None
    assert "start:" not in printed([*PLAN, "runtime.startup.sync=members"])


def test_the_two_verbs_refer_to_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    slow = start_line(wt.predict(wt.load("megascale-175b-12288", [*PLAN, *SLOW])))
    assert slow is not None and "fleet startup" in slow and "runtime.startup" in slow
    assert main(["fleet", "startup", "--mesh", "dp=2,pp=2,tp=2"]) == 0
    told = capsys.readouterr().out
    assert "windtunnel predict" in told and "init_time_s" in told and "runtime.startup" in told
