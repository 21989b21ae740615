"""The harness of the fault matrix, and what its cut (`make fleet-faults-short`) leaves out. gloo on loopback."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.bench import Bench
from tests.faults.cases import CASES
from tests.faults.causes.drive import end
from tests.faults.causes.listed import ENDS
from tests.faults.outcome import Outcome, passed, share_bounds
from tests.faults.page import page
from tests.faults.run import folder, running
from tests.faults.standing import SILENT_LIMIT, within
from tests.faults.tally import read_tallies, tally, write_tallies
from tests.faults.training import Job

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_that_multiprocessing_started_raises(method: str) -> None:
    ended = end(next(one for one in ENDS if one.settings.get("METHOD") == method))
    assert ended.right and not ended.wrong, ended.said


def test_nothing_is_left_of_a_run() -> None:
    """Also of ranks that are stopped when the block is left."""
    with Bench() as bench:
        with folder() as path, running(bench.zygote, Job(path, ranks=2, steps=10_000)) as pids:
            time.sleep(0.2)
            os.kill(pids[1], signal.SIGSTOP)
        assert not Path(path).exists()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


def test_bounds_of_shares() -> None:
    assert share_bounds(0, 200)[1] == pytest.approx(3 / 200, rel=0.01)
    assert share_bounds(40, 40)[0] == pytest.approx(1 - 3 / 40, abs=0.003)
    low, high = share_bounds(38, 40)
    assert low == pytest.approx(0.8308, abs=1e-4) and high == pytest.approx(0.9939, abs=1e-4)  # tables of Clopper and Pearson


def test_the_cut_fails_on_wrong_names_and_on_misses() -> None:
    case = next(one for one in CASES if one.name == "hang")
    good = Outcome(True, said="rank 1", seconds=1.0)
    assert passed(case, [good, good]) == ""
    assert "named what is not wrong" in passed(case, [good, Outcome(True, ("rank 2",))])
    assert "1 of 2 right" in passed(case, [good, within(Outcome(True, said="rank 1", seconds=9.0), SILENT_LIMIT)])
    assert passed(next(one for one in CASES if one.name == "fade"), [Outcome(False)]) == ""


def test_the_page_says_what_failed_and_what_did_not_run(tmp_path: Path) -> None:
    hang, fade = (next(one for one in CASES if one.name == name) for name in ("hang", "fade"))
    outcomes = [Outcome(True, (), "rank 1", 1.5, {"chain": 2.0}), Outcome(False, ("rank 3: silent",), "rank 3: silent")]
    write_tallies(tmp_path / "faults.json", {"hang": tally(outcomes, (0.5, 1.5))})
    text = page([hang, fade], read_tallies(tmp_path / "faults.json"))
    assert "* `hang`: not right: rank 3: silent." in text and "* `hang`: wrong: rank 3: silent." in text
    assert "| 2 | 100 | 1 | 1.3% to 98.7% | 1 | < 98.7% | 1.50, 1.50 | 0.5, 1.5 |" in text
    assert next(line for line in text.splitlines() if line.startswith("| `fade`")).count("not run") == 1
