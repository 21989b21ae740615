"""Checkpoints of real ranks (gloo): saved, killed, damaged, loaded by another world and under another plan."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import ForkedJob, RankForge, Said, agreed_digests
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from windtunnel.cli import app  # noqa: E402
from windtunnel.fleet.checkpoint.flush_process import query_process  # noqa: E402
from windtunnel.fleet.checkpoint.folder import step_folder  # noqa: E402
from windtunnel.fleet.checkpoint.memory import socket_names, socket_prefix  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("checkpoint_scripts.py")


class CheckpointJobs:
    """Starts functions of the script on ranks."""

    def __init__(self, forge: RankForge) -> None:
        self.forge = forge

    def ran(self, what: str, folder: Path, world: int, *more: Any, **options: Any) -> Said:
        """What each rank of a job said, once all have ended well."""
        return self.forge.ran(what, world, str(folder), *more, **options)

    @contextmanager
    def killed(self, folder: Path, world: int, **options: Any) -> Iterator[Any]:
        """The digests of a job that saved step 10 and was killed with -9."""
        job = self.forge.started("die", world, [str(folder)], options)
        said = _first_words(job)
        self.forge.killed(job)
        yield said[0][0]["digests"]


def _first_words(job: ForkedJob) -> Said:
    end = time.monotonic() + 120
    while not all(said := job.said()):
        assert time.monotonic() < end, "a rank says nothing"
        time.sleep(0.02)
    return said


@pytest.mark.parametrize(
    "kind, options", [("AdamW", {}), ("NAdam", {}), ("SGD", {"momentum": 0.9}), ("RMSprop", {}), ("Adagrad", {})]
)
def test_planning_a_save_leaves_a_fresh_optimizer_as_it_is(kind: str, options: dict[str, float]) -> None:
    """`prepare` before the first step: training goes on bit-equally to one without checkpoints."""
    from windtunnel.fleet.checkpoint.states import collect_state

    def trained(planned: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-2, **options)
        if planned:
            kept = collect_state({"model": model, "optimizer": optimizer}, 0)["optimizer"]
            assert set(kept["state"]) == {"weight", "bias"}
        for _ in range(4):
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [float(value) for value in model.weight.detach().flatten()]

    assert trained(planned=True) == trained(planned=False)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckpointJobs]:
    forge = RankForge(SCRIPT, tmp_path_factory.mktemp("said"))
    yield CheckpointJobs(forge)
    forge.close()


@pytest.mark.parametrize("world", [2, 6])
def test_sharded_state_loads_on_another_world_bit_equal(jobs: CheckpointJobs, tmp_path: Path, world: int) -> None:
    saved = jobs.ran("save", tmp_path, 4)
    loaded = jobs.ran("load", tmp_path, world)
    assert agreed_digests(loaded) == agreed_digests(saved, 1)
    assert {one[0]["step"] for one in loaded} == {20} == {one[0]["epoch"] for one in loaded}
    shards = sum(path.stat().st_size for path in step_folder(tmp_path, 20).glob("*.distcp"))
    assert sum(one[0]["storage"] for one in loaded) == shards


PLANS = {"alone": 1, "ddp": 2, "fsdp1": 2, "fsdp2": 4, "tp": 2, "tp-fsdp2": 4, "stages": 2, "traced": 2}
CHANGES = [
    ("fsdp2", "tp"), ("fsdp2", "alone"), ("tp", "fsdp2"), ("tp-fsdp2", "ddp"), ("ddp", "stages"), ("stages", "tp-fsdp2"),
    ("stages", "traced"), ("traced", "alone"), ("alone", "traced"), ("traced", "fsdp2"), ("fsdp1", "fsdp1"), ("fsdp1", "fsdp2"),
    ("tp", "fsdp1"), ("fsdp1", "stages"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_weights_moments_and_options_load_under_another_plan(jobs: CheckpointJobs, tmp_path: Path, before: str, after: str) -> None:
    saved = agreed_digests(jobs.ran("save", tmp_path, PLANS[before], plan=before, steps=(10,)))
    assert len(saved) == 6
    assert agreed_digests(jobs.ran("load", tmp_path, PLANS[after], plan=after)) == saved


def test_replicated_state_is_read_once_by_eight_ranks(jobs: CheckpointJobs, tmp_path: Path) -> None:
    saved = jobs.ran("save", tmp_path, 2, plan="alone")
    loaded = jobs.ran("load", tmp_path, 8, plan="alone")
    shards = sum(path.stat().st_size for path in step_folder(tmp_path, 20).glob("*.distcp"))
    assert sum(one[0]["storage"] for one in loaded) == shards
    assert agreed_digests(loaded) == agreed_digests(saved, 1)


def test_plain_dcp_reads_a_committed_folder(jobs: CheckpointJobs, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    jobs.ran("save", tmp_path, 2)
    dcp_to_torch_save(step_folder(tmp_path, 20), tmp_path / "all.pt")
    whole = torch.load(tmp_path / "all.pt", weights_only=False)
    into = {"model": {name: torch.zeros_like(value) for name, value in whole["model"].items()}}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(into, storage_reader=dcp.FileSystemReader(step_folder(tmp_path, 20)), no_dist=True)
    assert into["model"] and all(torch.equal(into["model"][name], value) for name, value in whole["model"].items())


@pytest.mark.parametrize("name", ["__1_0.distcp", ".metadata", "manifest.json"])
def test_a_flipped_bit_falls_back_one_step(jobs: CheckpointJobs, tmp_path: Path, name: str) -> None:
    saved = jobs.ran("save", tmp_path, 2)
    path = step_folder(tmp_path, 20) / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    loaded = jobs.ran("load", tmp_path, 2)
    assert agreed_digests(loaded) == agreed_digests(saved)
    assert loaded[0][0]["step"] == 10 and loaded[0][0]["passed"][0][0] == 20


def test_random_numbers_of_each_rank_come_back(jobs: CheckpointJobs, tmp_path: Path) -> None:
    saved = jobs.ran("save", tmp_path, 2)
    loaded = jobs.ran("load", tmp_path, 2)
    assert [one[1]["random"] for one in saved] == [one[0]["random"] for one in loaded]


def test_memory_of_a_killed_job_is_read_instead_of_storage(jobs: CheckpointJobs, tmp_path: Path) -> None:
    with jobs.killed(tmp_path, 2) as digests:
        first = jobs.ran("load", tmp_path, 2)
        jobs.ran("save", tmp_path, 2, steps=())  # prepares, and so ends what the killed job left
        second = jobs.ran("load", tmp_path, 2)
    assert agreed_digests(first) == agreed_digests(second) == digests
    assert [(one[0]["source"], one[0]["storage"]) for one in first] == [("memory", 0)] * 2
    assert [one[0]["source"] for one in second] == ["storage"] * 2


@pytest.mark.parametrize("kind", ["ddp", "wrapped-late", "fsdp2"])
def test_a_job_that_goes_on_adds_up_gradients_as_one_that_was_not_cut(jobs: CheckpointJobs, tmp_path: Path, kind: str) -> None:
    """Three ranks: with two, the order of a sum does not matter."""
    wanted = jobs.ran("trained", tmp_path / "whole", 3, kind=kind, until=11)[0][0]["weights"]
    # after the step that arranges the buckets of DDP, after the first with them, later
    for cut, every in ((1, 1), (2, 1), (7, 3)) if kind != "fsdp2" else ((7, 3),):
        folder = tmp_path / f"cut{cut}"
        jobs.ran("trained", folder, 3, kind=kind, until=cut, every=every)
        (on,) = {(one[0]["first"], one[0]["weights"]) for one in jobs.ran("trained", folder, 3, kind=kind, until=11)}
        assert on == (cut // every * every, wanted)


def test_memory_that_nobody_needs_is_not_kept(jobs: CheckpointJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node was replaced: its processes end once the next attempt has committed a newer step elsewhere, not minutes later."""
    prefix = socket_prefix(str(tmp_path), "old")
    with jobs.killed(tmp_path, 2, node="old"):
        assert len(socket_names(prefix)) == 2
        jobs.ran("save", tmp_path, 2, node="new", steps=(20,))
        end = time.monotonic() + 60
        while socket_names(prefix):
            assert time.monotonic() < end, "they linger"
            time.sleep(0.1)


def test_a_lost_node_is_read_from_its_neighbour(jobs: CheckpointJobs, tmp_path: Path) -> None:
    with jobs.killed(tmp_path, 2, neighbour=True, node=["a", "b"]) as digests:
        for door in socket_names(socket_prefix(str(tmp_path), "a")):  # node a is lost, with its memory
            query_process(door, {"do": "retire"}, 10.0)
        loaded = jobs.ran("load", tmp_path, 2, node=["b", "c"])
        jobs.ran("save", tmp_path, 2, node=["b", "c"], steps=())
    assert agreed_digests(loaded) == digests
    assert [one[0]["storage"] for one in loaded] == [0, 0]
    assert "neighbour" in {one[0]["source"] for one in loaded}


def test_a_save_that_finds_both_buffers_busy_is_skipped_on_all_ranks(jobs: CheckpointJobs, tmp_path: Path) -> None:
    for first, second, last in jobs.ran("skip", tmp_path, 2):
        assert first["staged"] == [True, True, False, False]
        assert first["why"] == ["", "", *["both buffers are still being written"] * 2] and first["bytes"][2:] == [0, 0]
        assert second["skipped"] == 2 and second["failed"] == {} and second["newest"] == 2
        assert last["staged"] and last["newest"] == 5
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000001", "step-00000002", "step-00000005"]


@pytest.mark.parametrize("tied", [False, True])
def test_exported_weights_are_those_that_were_saved(jobs: CheckpointJobs, tmp_path: Path, tied: bool) -> None:
    from safetensors.torch import load_file

    jobs.ran("save", tmp_path / "saved", 2, tied=True) if tied else jobs.ran("save", tmp_path / "saved", 2)
    file = tmp_path / "weights.safetensors"
    step = step_folder(tmp_path / "saved", 20)
    told = CliRunner().invoke(app, ["fleet", "checkpoints", "export", str(step), str(file)])
    assert told.exit_code == 0, told.output
    found = load_file(file)
    if tied:
        whole = torch.load(tmp_path / "whole.pt")
        assert set(found) == set(whole) == {"first.weight", "middle.weight", "middle.bias", "last.weight"}
        assert torch.equal(found["first.weight"], found["last.weight"])
    else:
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        dcp_to_torch_save(step, tmp_path / "all.pt")
        whole = torch.load(tmp_path / "all.pt", weights_only=False)["model"]
    assert set(found) == set(whole) and all(torch.equal(found[name], whole[name]) for name in whole)


@pytest.mark.parametrize("kill_at", [4, 11])
def test_a_killed_job_goes_on_with_the_same_samples(jobs: CheckpointJobs, tmp_path: Path, kill_at: int) -> None:
    steps = 14
    name = f"checkpoint-{os.getpid()}-{kill_at}"
    plain = [one[1:] for one in jobs.ran("samples", tmp_path / "plain", 2, steps, f"{name}-plain")]
    killed = jobs.forge.started("samples", 2, [str(tmp_path / "killed"), steps, f"{name}-killed", kill_at], {})
    codes = jobs.forge.ended(killed)
    assert codes[1] == -9
    resumed = jobs.ran("samples", tmp_path / "killed", 2, steps, f"{name}-resumed")
    (first,) = {one[0]["loaded"] for one in resumed}
    assert first == kill_at // 3 * 3
    for before, whole, after in zip(killed.said(), plain, resumed, strict=True):
        assert before[1 : first + 1] == whole[:first]
        assert after[1:] == whole[first:]


def _trained(groups: list[dict[str, Any]], model: Any) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(groups)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def test_one_group_of_what_were_two_is_refused(tmp_path: Path) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    model = torch.nn.Linear(2, 2)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, _trained([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}], model))
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(SpecError, match="lr of bias: 0.25"):
        checkpointer.load(_trained([{"params": [model.weight, model.bias]}], model))


def test_an_option_that_was_not_saved_stays_as_it_is(tmp_path: Path) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    model = torch.nn.Linear(2, 2)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, _trained([{"params": list(model.parameters()), "lr": 0.5}], model))
    with Checkpointer(tmp_path) as checkpointer:
        state = _trained([{"params": list(model.parameters()), "lr": 0.1, "new in this version": 3}], model)
        assert checkpointer.load(state) == 1
    group = state["optimizer"].param_groups[0]
    assert group["lr"] == 0.5 and group["new in this version"] == 3


def test_a_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    state = {"weights": torch.arange(6.0)}
    with Checkpointer(tmp_path) as first:
        first.save(1, state)
    with Checkpointer(tmp_path) as second, pytest.raises(SpecError, match="Call load"):
        second.save(2, state)


def test_cpu_tensors_may_change_as_soon_as_save_returns(tmp_path: Path) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    state = {"weights": torch.arange(1 << 20, dtype=torch.float32)}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state)
        state["weights"].zero_()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.load(state) == 1
    assert torch.equal(state["weights"], torch.arange(1 << 20, dtype=torch.float32))


def test_tensors_that_do_not_lie_in_a_row_are_saved_as_they_are(tmp_path: Path) -> None:
    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    def state(start: float) -> dict[str, Any]:
        some = torch.arange(start, start + 24).reshape(4, 6)
        mixed = torch.complex(some, some + 1)
        return {"turned": some.T, "every": some[::2, 1::3], "conjugated": mixed.conj(), "none": some[:0], "one": some.sum()}

    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state(0.0))
    found = state(100.0)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.load(found) == 1
    assert all(torch.equal(found[name], value) for name, value in state(0.0).items())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_pieces_are_copied_once_each_whoever_takes_them(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from windtunnel.fleet.checkpoint import staging

    monkeypatch.setattr(staging, "PIECE", 1000)
    sources = [torch.randint(0, 256, (size,), dtype=torch.uint8) for size in (0, 1, 999, 1000, 1001, 123_457)]
    targets = [torch.zeros_like(one) for one in sources]
    copier = staging.PieceCopier(threads)
    for _ in range(3):
        copier.copy((target.data_ptr(), one.data_ptr(), one.numel()) for target, one in zip(targets, sources, strict=True))
        assert all(torch.equal(target, one) for target, one in zip(targets, sources, strict=True))
        for target in targets:
            target.zero_()
    copier.close()
