"""Ranks that raise or die while the others stay: training ends with the weights of a run that nothing happened to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from forked_ranks import RankForge

pytest.importorskip("torch")
pytest.importorskip("cryptography")

import torch.distributed as dist

from tests.faults.recovery.rejoin import events, rejoining_job, seconds_to_step
from windtunnel.base.errors import SpecError
from windtunnel.fleet import PerRank, RandomState, RecoveryError, train_through_faults
from windtunnel.fleet.driver.plan import FRUITLESS_REJOINS, RecoveryDecision, ranks_to_rejoin
from windtunnel.fleet.recovery import HeldSteps, _Memory, _Recovery, choose_step
from windtunnel.fleet.wire.messages import RankReport

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).parent / "recovery_ranks.py"
ALL = (0, 1, 2, 3)


class Ended:
    """A job of four ranks that has ended: the exit codes of each rank's processes, and what they wrote."""

    def __init__(self, forge: RankForge, folder: Path, *words: str) -> None:
        self.folder = folder
        ((told,),) = forge.ran("job", 1, str(folder), *words)
        self.codes: list[list[int]] = told["codes"]

    def weights(self) -> set[str]:
        """The hashes of the ranks' final weights."""
        lines = [line for rank in ALL for line in (self.folder / f"events-{rank}.jsonl").read_text().splitlines()]
        found = [event for line in lines if (event := str(json.loads(line)["event"])).startswith("weights")]
        assert len(found) == len(ALL), self.log(0)
        return set(found)

    def log(self, rank: int) -> str:
        return (self.folder / f"rank-{rank}.log").read_text()


Start = Callable[..., Ended]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Runs a job in a folder, with options."""
    forge = RankForge(SCRIPT, tmp_path_factory.mktemp("said"))
    yield partial(Ended, forge)
    forge.close()


@pytest.fixture(scope="module")
def wanted(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], set[str]]:
    """The weights of a job without faults, by its option."""
    known: dict[str, set[str]] = {}

    def weights(*words: str) -> set[str]:
        if words not in known:
            known[words] = start(tmp_path_factory.mktemp("plain"), *words).weights()
        return known[words]

    return weights


def test_an_exception_restarts_all_inside_their_processes(start: Start, tmp_path: Path, wanted: Callable[..., set[str]]) -> None:
    """One before the collectives, and one after the optimizer has changed this rank's weights alone."""
    job = start(tmp_path, "--fault", "5:2:raise", "--fault", "8:1:late")
    assert job.codes == [[0]] * 4
    assert job.weights() == wanted()
    assert "rank 2 raised ValueError: shard 5 is corrupt; rank 0 goes on after step 5" in job.log(0)
    assert "goes on after step 9, with the state of rank " in job.log(1)


@pytest.mark.parametrize("words", [(), ("--every", "4")], ids=["every-step", "every-4"])
def test_a_killed_rank_comes_back_alone(
    start: Start, words: tuple[str, ...], tmp_path: Path, wanted: Callable[..., set[str]]
) -> None:
    """Also rank 0. The others' processes end once, with 0: they stayed."""
    job = start(tmp_path, "--fault", "6:0:kill", *words)
    assert job.codes == [[-signal.SIGKILL, 0], [0], [0], [0]]
    assert job.weights() == wanted()
    assert f"started anew: rank 0; rank 0 goes on after step {4 if words else 6}, with the state of rank 1" in job.log(0)


def test_a_second_fault_while_ranks_recover(start: Start, tmp_path: Path, wanted: Callable[..., set[str]]) -> None:
    """With DDP, whose buckets must be arranged as they were: anew after its first step, and not before."""
    job = start(tmp_path, "--ddp", "--every", "4", "--fault", "2:3:raise", "--fault", "7:2:kill", "--fault", "0:1:connect")
    assert job.codes == [[0], [-signal.SIGKILL, 0], [-signal.SIGKILL, 0], [0]]
    assert job.weights() == wanted("--ddp")


def test_a_rank_without_a_replica_is_refused(start: Start, tmp_path: Path) -> None:
    """Each rank has a state of its own: a rank that raises goes on from its own memory, one that dies cannot."""
    job = start(tmp_path, "--sharded", "--fault", "3:1:raise", "--fault", "5:2:kill")
    assert job.codes == [[1], [1], [-signal.SIGKILL, 1], [1]]
    assert "rank 1 raised ValueError: shard 3 is corrupt; rank 0 goes on after step 3" in job.log(0)
    for rank in ALL:
        assert "RecoveryError: the state of ranks 2 is gone, and no replica peer holds it in memory" in job.log(rank)
        assert "start it from its checkpoint" in job.log(rank)


def test_a_step_that_always_raises_ends_the_job(start: Start, tmp_path: Path) -> None:
    job = start(tmp_path, "--fault", "5:1:always")
    assert job.codes == [[1]] * 4
    assert job.log(1).rstrip().endswith("ValueError: shard 5 is corrupt")
    assert "RecoveryError: 4 faults in a row, and no step between them" in job.log(0)


def test_a_rank_that_does_not_come_back_is_named() -> None:
    recovery = _Recovery(dist.HashStore(), 1, 3, _Memory({}, 1), (0, 1, 2), "gloo", timeout=0.05)
    recovery.store.set("joined/0/0", "")
    with pytest.raises(RecoveryError, match=r"ranks 2 did not come within 0.05 s.*--rejoin"):
        recovery.join()


def test_the_step_to_go_on_from() -> None:
    def joined(peers: tuple[int, ...], *held: int) -> HeldSteps:
        return HeldSteps({step: {} for step in held}, peers, 0)

    assert choose_step([joined(ALL)] * 4) == (None, {})
    assert choose_step([joined(ALL, 5), joined(ALL, 6), joined(ALL), joined(ALL, 6)]) == (6, {0: 1, 2: 1})
    halves = [joined((0, 1), 4, 5), joined((0, 1)), joined((2, 3), 3, 4), joined((2, 3), 4)]
    apart = [joined((0, 1), 5), joined((0, 1)), joined((2, 3), 4), joined((2, 3), 4)]
    assert choose_step(halves) == (4, {1: 0})
    with pytest.raises(RecoveryError, match="of ranks 2, 3 is gone"):
        choose_step([*halves[:2], joined((2, 3)), joined((2, 3))])
    with pytest.raises(RecoveryError, match="is not of one step"):
        choose_step(apart)


def test_state_that_peers_do_not_hold_is_refused() -> None:
    with pytest.raises(SpecError, match="seed=N"):
        train_through_faults(lambda: print, {"random": PerRank(RandomState())}, 1)


def test_which_ranks_are_started_anew_alone() -> None:
    def reports(*codes: int | None) -> list[RankReport]:
        return [RankReport(rank, 100 + rank, code) for rank, code in enumerate(codes)]

    keep = RecoveryDecision("retry", ("a", "b"))
    assert ranks_to_rejoin(keep, reports(None, -9, None, 1), 4, 0) == (1, 3)
    assert ranks_to_rejoin(RecoveryDecision("replace", ("a", "c")), reports(None, -9, None, None), 4, 0) == ()
    assert ranks_to_rejoin(keep, reports(None, None, None, None), 4, 0) == (), "a hang"
    assert ranks_to_rejoin(keep, reports(-9, 1, 1, 1), 4, 0) == (), "no survivor"
    assert ranks_to_rejoin(keep, reports(None, -9, None, 0), 4, 0) == (), "a rank that is done does not come back"
    assert ranks_to_rejoin(keep, reports(None, -9, None, None), 4, FRUITLESS_REJOINS) == ()


@pytest.mark.usefixtures("keepers")
def test_all_ranks_start_again_where_a_keeper_ended(tmp_path: Path) -> None:
    """Rank 0's, with which the store of the attempt ended."""
    with rejoining_job(tmp_path / "job", 60, 30.0, 2) as job:
        job.drive()
        assert job.until(job.training)
        os.kill(job.keeper_of(0), signal.SIGKILL)
        assert job.ended() == 0, job.said()
        assert job.attempts() == 2
        assert [(one.action, one.outcome) for one in job.incidents()] == [("retry", "recovered")]
        assert "its keeper ended" in job.incidents()[0].evidence


@pytest.mark.usefixtures("keepers")
def test_a_driver_starts_one_rank_anew(tmp_path: Path) -> None:
    """Rank 0 too, whose process has no store of the job's. The attempt stays the first."""
    with rejoining_job(tmp_path / "job", 150, 30.0, 2) as job:
        job.drive()
        assert job.until(job.training)
        pids = [job.rank(rank)[0] for rank in ALL]
        for rank in (3, 0):
            since = max(line["unix"] for line in events(job)[rank])
            os.kill(pids[rank], signal.SIGKILL)
            assert job.until(lambda rank=rank, since=since: seconds_to_step(events(job), rank, since, pids[rank]) is not None)  # type: ignore[misc]
            assert job.until(job.training)
        assert job.ended() == 0, job.said()
        assert job.attempts() == 1
        assert [{line["pid"] for line in own} for own in events(job)][1:3] == [{pids[1]}, {pids[2]}]
        found = [(one.what, one.ranks, one.action, one.outcome) for one in job.incidents()]
        assert found == [("crash", (3,), "rejoin", "recovered"), ("crash", (0,), "rejoin", "recovered")]
        hurt = job.weights()
    with rejoining_job(tmp_path / "plain", 150, 0.0, 2) as job:
        job.drive()
        assert job.ended() == 0, job.said()
        assert job.weights() == hurt
