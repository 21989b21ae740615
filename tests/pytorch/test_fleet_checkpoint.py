"""Checkpoints of real ranks (gloo): saved, killed, damaged, loaded by another world."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from windtunnel.fleet.checkpoint.folder import step_folder  # noqa: E402
from windtunnel.fleet.checkpoint.process import asked  # noqa: E402
from windtunnel.fleet.checkpoint.words import door_prefix, doors  # noqa: E402

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).with_name("checkpoint_scripts.py")


def _start(what: str, folder: Path, world: int, options: dict[str, Any]) -> list[subprocess.Popen[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen([sys.executable, str(SCRIPT), what, str(folder), json.dumps(options)], env={**shared, "RANK": str(rank)},
                         stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]  # fmt: skip


def ran(what: str, folder: Path, world: int, **options: Any) -> list[list[dict[str, Any]]]:
    """What each rank of a script said."""
    ranks = _start(what, folder, world, options)
    told = [rank.communicate(timeout=90)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world
    return [[json.loads(line) for line in one.splitlines() if line.startswith("{")] for one in told]


@contextmanager
def killed(folder: Path, world: int, **options: Any) -> Iterator[str]:
    """The digest of a job that saved step 10 and was killed with -9."""
    ranks = _start("die", folder, world, options)
    try:
        said = [json.loads(next(line for line in rank.stdout or () if line.startswith("{"))) for rank in ranks]
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()
    yield said[0]["digest"]


@pytest.mark.parametrize("world", [2, 4, 6])
def test_sharded_state_loads_on_another_world_bit_equal(tmp_path: Path, world: int) -> None:
    saved = ran("save", tmp_path, 4)
    loaded = ran("load", tmp_path, world)
    assert {one[0]["digest"] for one in loaded} == {saved[0][1]["digest"]}
    assert {one[0]["step"] for one in loaded} == {20} == {one[0]["epoch"] for one in loaded}
    shards = sum(path.stat().st_size for path in step_folder(tmp_path, 20).glob("*.distcp"))
    assert sum(one[0]["storage"] for one in loaded) == shards


def test_replicated_state_is_read_once_by_eight_ranks(tmp_path: Path) -> None:
    saved = ran("save", tmp_path, 2, sharded=False)
    loaded = ran("load", tmp_path, 8, sharded=False)
    shards = sum(path.stat().st_size for path in step_folder(tmp_path, 20).glob("*.distcp"))
    assert sum(one[0]["storage"] for one in loaded) == shards
    assert {one[0]["digest"] for one in loaded} == {saved[0][1]["digest"]}


def test_plain_dcp_reads_a_committed_folder(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    ran("save", tmp_path, 2)
    dcp_to_torch_save(step_folder(tmp_path, 20), tmp_path / "all.pt")
    whole = torch.load(tmp_path / "all.pt", weights_only=False)
    into = {"model": {name: torch.zeros_like(value) for name, value in whole["model"].items()}}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(into, storage_reader=dcp.FileSystemReader(step_folder(tmp_path, 20)), no_dist=True)
    assert into["model"] and all(torch.equal(into["model"][name], value) for name, value in whole["model"].items())


@pytest.mark.parametrize("name", ["__1_0.distcp", ".metadata", "manifest.json"])
def test_a_flipped_bit_falls_back_one_step(tmp_path: Path, name: str) -> None:
    saved = ran("save", tmp_path, 2)
    path = step_folder(tmp_path, 20) / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    loaded = ran("load", tmp_path, 2)
    assert {one[0]["digest"] for one in loaded} == {saved[0][0]["digest"]}
    assert loaded[0][0]["step"] == 10 and loaded[0][0]["passed"][0][0] == 20


def test_random_numbers_of_each_rank_come_back(tmp_path: Path) -> None:
    saved = ran("save", tmp_path, 2)
    loaded = ran("load", tmp_path, 2)
    assert [one[1]["random"] for one in saved] == [one[0]["random"] for one in loaded]


def test_memory_of_a_killed_job_is_read_instead_of_storage(tmp_path: Path) -> None:
    with killed(tmp_path, 2) as digest:
        first = ran("load", tmp_path, 2)
        ran("save", tmp_path, 2, steps=())  # prepares, and so ends what the killed job left
        second = ran("load", tmp_path, 2)
    assert {one[0]["digest"] for one in (*first, *second)} == {digest}
    assert [(one[0]["source"], one[0]["storage"]) for one in first] == [("memory", 0)] * 2
    assert [one[0]["source"] for one in second] == ["storage"] * 2


def test_a_lost_node_is_read_from_its_neighbour(tmp_path: Path) -> None:
    with killed(tmp_path, 2, neighbour=True, node=["a", "b"]) as digest:
        for door in doors(door_prefix(str(tmp_path), "a")):  # node a is lost, with its memory
            asked(door, {"do": "retire"}, 10.0)
        loaded = ran("load", tmp_path, 2, node=["b", "c"])
        ran("save", tmp_path, 2, node=["b", "c"], steps=())
    assert {one[0]["digest"] for one in loaded} == {digest}
    assert [one[0]["storage"] for one in loaded] == [0, 0]
    assert "neighbour" in {one[0]["source"] for one in loaded}


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
