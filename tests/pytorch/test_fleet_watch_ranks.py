"""The monitor in two real processes: gloo on loopback, CPU clock."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forked_ranks import ForkedJob, RankForge

from windtunnel.base.comm import Comm
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import open_rings, ring_path
from windtunnel.records.sections import Section, Sections

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

SCRIPTS = Path(__file__).with_name("fleet_scripts.py")
LONG = 240
"""Seconds for what takes five on an idle machine."""


class Scripts:
    """Runs scripts of `fleet_scripts`, each in two processes."""

    def __init__(self, forge: RankForge) -> None:
        self.forge = forge

    def started(self, name: str, folder: Path, **extra: str) -> ForkedJob:
        """The processes of a script; `extra` joins their environment."""
        variables = {"WINDTUNNEL_FLEET_DIR": str(folder), "WINDTUNNEL_FLEET_RUN": "run", **extra}
        store = folder / f"store-{name}-{'-'.join(extra.values())}"
        return self.forge.started("run", 2, [name, str(folder), variables, str(store)], {})

    def ran(self, name: str, folder: Path, **extra: str) -> Sections:
        """The table after a script has ended well."""
        job = self.started(name, folder, **extra)
        assert self.forge.ended(job, LONG) == [0, 0], [file.read_text() for file in job.files]
        return recorded_of_rings(folder / "run").sections if (folder / "run").exists() else Sections.of([], [], [], [], [])


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    forge = RankForge(SCRIPTS, tmp_path_factory.mktemp("said"))
    yield Scripts(forge)
    forge.close()


def of_rank(table: Sections, rank: int, step: int, section: Section) -> Sections:
    return table.where((table.rank == rank) & (table.step == step) & (table.section == section))


def watched_and_plain(scripts: Scripts, name: str, folder: Path) -> tuple[Sections, int]:
    """The table of a script, and the bytes of its weights, which are equal bit by bit with and without the monitor."""
    table = scripts.ran(name, folder, WATCHED="1")
    scripts.ran(name, folder, WATCHED="0")
    watched, plain = (torch.load(folder / f"weights{on}.pt") for on in (1, 0))
    assert all(torch.equal(watched[key], plain[key]) for key in plain)
    return table, sum(tensor.numel() * 4 for tensor in plain.values())


def test_ddp_is_timed_and_weights_are_equal_bit_by_bit(scripts: Scripts, tmp_path: Path) -> None:
    table, weights = watched_and_plain(scripts, "ddp", tmp_path)
    for rank in (0, 1):
        for step in (2, 3, 4, 5):
            for section in (Section.FORWARD, Section.BACKWARD):
                assert of_rank(table, rank, step, section).micro_batch.tolist() == [0, 1], (rank, step, section)
            assert len(of_rank(table, rank, step, Section.OPTIMIZER)) == len(of_rank(table, rank, step, Section.STEP)) == 1
            calls = of_rank(table, rank, step, Section.CALL)
            reduced = calls.where((calls.comm == Comm.ALL_REDUCE) & (calls.bytes > 100))
            assert len(reduced) >= 4 and reduced.bytes.sum() == 2 * weights  # two micro batches, each all weights
            assert (calls.seconds > 0).all()
    one, two = (table.where((table.rank == rank) & (table.section == Section.CALL) & (table.step >= 2)) for rank in (0, 1))
    assert one.call.tolist() == two.call.tolist() and one.bytes.tolist() == two.bytes.tolist()
    assert {table.groups[group] for group in one.group} == {(0, 1)}


def test_ddp_of_before_the_start_is_seen_and_weights_are_equal_bit_by_bit(scripts: Scripts, tmp_path: Path) -> None:
    """Its reducer gets the group that tells us; after the stop it goes on with it."""
    table, weights = watched_and_plain(scripts, "late", tmp_path)
    for rank in (0, 1):
        for step in (0, 1, 2):
            for section in (Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER):
                assert len(of_rank(table, rank, step, section)) >= 1, section
            calls = of_rank(table, rank, step, Section.CALL)
            reduced = calls.where((calls.comm == Comm.ALL_REDUCE) & (calls.bytes > 100))
            assert reduced.bytes.sum() >= 2 * weights  # two micro batches; a map of used ones beside
            assert (calls.seconds > 0).all()
    assert "unseen" not in recorded_of_rings(tmp_path / "run").facts


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_collectives_of_compiled_graphs_are_recorded(scripts: Scripts, tmp_path: Path, backend: str) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler")
    table = scripts.ran("compiled", tmp_path, BACKEND=backend)
    for rank in (0, 1):
        for step in (0, 1, 2):
            calls = of_rank(table, rank, step, Section.CALL)
            seen = [(calls.names[name], int(size)) for name, size in zip(calls.name, calls.bytes, strict=True)]
            assert seen == [("all_gather_into_tensor", 2 * 8 * 4 * 4), ("all_reduce", 4)], (rank, step)
            assert (calls.seconds > 0).all()


def test_steps_follow_on_each_other(scripts: Scripts, tmp_path: Path) -> None:
    table = scripts.ran("ddp", tmp_path, WATCHED="1")
    steps = table.where((table.rank == 0) & (table.section == Section.STEP))
    ended = steps.begin[:-1] + steps.seconds[:-1]
    assert steps.step.tolist() == list(range(len(steps))) and np.isnan(steps.seconds[-1])
    assert (np.abs(steps.begin[1:] - ended) < 1.0).all() and (steps.begin[1:] >= ended - 1e-6).all()


def test_every_kind_of_call_has_bytes_as_nccl_tests_counts_them(scripts: Scripts, tmp_path: Path) -> None:
    table = scripts.ran("calls", tmp_path)
    for rank in (0, 1):
        mine = table.where((table.rank == rank) & (table.section == Section.CALL))
        assert not np.isnan(mine.seconds).any()
        seen = [(mine.names[n], int(b), mine.group_names[g]) for n, b, g in zip(mine.name, mine.bytes, mine.group, strict=True)]
        world, late = "world", next(name for name in mine.group_names if name not in ("world", "start-up"))
        assert seen[:9] == [
            ("all_reduce", 16, world), ("all_reduce", 16, late), ("all_gather_into_tensor", 32, world), ("all_gather", 32, world),
            ("broadcast from 0", 16, world), ("reduce to 0", 16, world), ("all_to_all_single", 32, world),
            ("reduce_scatter_tensor", 32, world), ("barrier", 4, world),
        ]  # fmt: skip
        single = mine.where(mine.peer >= 0)
        assert (single.peer == 1 - rank).all() and (single.comm == Comm.SEND_RECV).all()
        sent, got = single.where(single.sends), single.where(~single.sends)
        expected = ([16, 32, 16], [0, 1, 2]), ([16], [0])
        for part, (sizes, numbers) in zip((sent, got), expected if rank == 0 else expected[::-1], strict=True):
            assert (part.bytes.tolist(), part.call.tolist()) == (sizes, numbers)
        assert [(n, b) for n, b, _ in seen[-2:]] == [("all_reduce", 16), ("all_gather_into_tensor", 32)]
        inside = mine.where((mine.peer < 0) & (mine.group == mine.group[0]))
        assert inside.call.tolist() == list(range(len(inside)))


def test_fsdp2_gathers_and_reduces_in_the_mesh(scripts: Scripts, tmp_path: Path) -> None:
    table = scripts.ran("sharded", tmp_path)
    for rank in (0, 1):
        calls = of_rank(table, rank, 3, Section.CALL)
        assert {Comm(code) for code in calls.comm} >= {Comm.ALL_GATHER, Comm.REDUCE_SCATTER}
        sharded = calls.where((calls.comm == Comm.ALL_GATHER) | (calls.comm == Comm.REDUCE_SCATTER))
        assert {table.groups[group] for group in sharded.group} == {(0, 1)}  # the mesh's line says that these are dp_shard
        assert {table.groups[group] for group in calls.group} <= {(0, 1), (rank,)}  # and dp_replicate has one rank
        assert of_rank(table, rank, 3, Section.FORWARD).micro_batch.tolist() == [0, 1]
    with open_rings(tmp_path / "run") as readers:
        for reader in readers:
            assert ("mesh", {"names": ["dp_replicate", "dp_shard"], "shape": [1, 2], "ranks": [0, 1]}) in reader.lines()


def test_pipeline_stages_have_their_micro_batches(scripts: Scripts, tmp_path: Path) -> None:
    table = scripts.ran("pipeline", tmp_path)
    for rank in (0, 1):
        for section in (Section.FORWARD, Section.BACKWARD):
            part = of_rank(table, rank, 1, section)
            assert part.micro_batch.tolist() == [0, 1, 2, 3]
            assert {table.names[name] for name in part.name} == {f"stage {rank}"}
        calls = of_rank(table, rank, 1, Section.CALL)
        assert (calls.sends.sum(), (~calls.sends).sum()) == (4, 4) and (calls.peer == 1 - rank).all()


def test_a_stopped_rank_is_silent_and_one_that_waits_is_not(scripts: Scripts, tmp_path: Path) -> None:
    job = scripts.started("hang", tmp_path)
    until = time.monotonic() + LONG
    while not all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)):
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(job.pids[1], signal.SIGSTOP)
    waits, stopped = (RingReader(ring_path(tmp_path / "run", rank)) for rank in (0, 1))
    time.sleep(0.2)
    last, beat = stopped.read(0).beat_ns, waits.read(0).beat_ns
    while waits.read(0).beat_ns < beat + 10**9:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert stopped.read(0).beat_ns == last
    table = recorded_of_rings(tmp_path / "run").sections
    mine = table.where((table.rank == 0) & (table.section == Section.CALL))
    assert np.isnan(mine.seconds).tolist() == [False, True] and mine.call.tolist() == [0, 1]
    waits.close()
    stopped.close()
    scripts.forge.killed(job)


def test_clocks_can_be_set_wrong(scripts: Scripts, tmp_path: Path) -> None:
    scripts.ran("calls", tmp_path, WINDTUNNEL_FLEET_CLOCK="-7200000000000,100")
    with open_rings(tmp_path / "run") as readers:
        for reader in readers:
            tail = reader.read(0)
            assert all(7000 < time.time() - int(value) * 1e-9 < 8000 for value in (tail.beat_ns, *tail.rows["begin"]))
