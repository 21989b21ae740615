"""Checkpoints that were made to run code when they are loaded, files that others may read, memory that another user offers."""

from __future__ import annotations

import json
import os
import pickle
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from helpers.other_user import running_as_nobody

torch = pytest.importorskip("torch")

from windtunnel.base.errors import FileError, SpecError  # noqa: E402
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer  # noqa: E402
from windtunnel.fleet.checkpoint.export import export_weights  # noqa: E402
from windtunnel.fleet.checkpoint.folder import step_folder  # noqa: E402
from windtunnel.fleet.checkpoint.manifest import (  # noqa: E402
    METADATA,
    Manifest,
    ShardFile,
    hash_of,  # noqa: E402
    read_manifest,
)
from windtunnel.fleet.checkpoint.memory import packet_socket, receive_message, send_message, socket_prefix  # noqa: E402
from windtunnel.fleet.checkpoint.staging import pack_object  # noqa: E402
from windtunnel.fleet.checkpoint.states import RandomState  # noqa: E402

pytestmark = pytest.mark.torch


class Attack:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


class Cursor:
    """State of a user's own loader."""

    def __init__(self, at: int) -> None:
        self.at = at


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4)


def save(folder: Path, state: dict[str, Any], **options: Any) -> Path:
    with Checkpointer(folder, node="node0", **options) as checkpointer:
        checkpointer.load(state)
        checkpointer.save(10, state)
        checkpointer.wait()
    return step_folder(folder, 10)


def rewrite(step: Path, name: str, data: bytes) -> None:
    """A file of a step with other bytes, and the manifest that belongs to them."""
    (step / name).write_bytes(data)
    before = read_manifest(step)
    shards = tuple(ShardFile(one.name, len(data), hash_of(data), 0) if one.name == name else one for one in before.shards)
    fields = {key: getattr(before, key) for key in ("step", "attempt", "world", "written", "version", "topology")}
    (step / "manifest.json").write_text(Manifest(shards=shards, **fields).text())


def test_metadata_that_runs_code_is_passed_over(tmp_path: Path) -> None:
    step = save(tmp_path / "steps", {"model": model()})
    rewrite(step, METADATA, pickle.dumps(Attack(tmp_path / "ran")))
    with pytest.raises(SpecError, match="which no checkpoint needs"):
        Checkpointer(tmp_path / "steps").load({"model": model()})
    with pytest.raises(FileError, match="which no checkpoint needs"):
        export_weights(step, tmp_path / "weights.safetensors")
    assert not (tmp_path / "ran").exists()


def test_an_object_that_runs_code_is_refused(tmp_path: Path) -> None:
    note = {"text": "x" * 4000}
    step = save(tmp_path / "steps", {"model": model(), "note": note})
    shard = next(step.glob("*.distcp"))
    data, attack = shard.read_bytes(), pack_object(Attack(tmp_path / "ran"))
    at = data.index(pack_object("x" * 4000))
    rewrite(step, shard.name, data[:at] + attack + data[at + len(attack) :])
    with pytest.raises(SpecError, match="mkdir"):
        Checkpointer(tmp_path / "steps").load({"model": model(), "note": note})
    assert not (tmp_path / "ran").exists()


def test_what_a_load_would_refuse_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"add_safe_globals\(\[Cursor\]\)"):
        save(tmp_path / "steps", {"model": model(), "cursor": Cursor(3)})
    with torch.serialization.safe_globals([Cursor]):
        save(tmp_path / "allowed", {"model": model(), "cursor": Cursor(3)})
        state: dict[str, Any] = {"model": model(), "cursor": Cursor(0)}
        assert Checkpointer(tmp_path / "allowed").load(state) == 10
        assert state["cursor"].at == 3


def test_a_value_that_becomes_an_object_later_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    state: dict[str, Any] = {"model": model(), "cursor": 3}
    with Checkpointer(tmp_path / "steps") as checkpointer:
        checkpointer.load(state)
        checkpointer.save(10, state)
        with pytest.raises(SpecError, match="Cursor"):
            checkpointer.save(20, {**state, "cursor": Cursor(4)})


def test_arrays_times_and_paths_are_plain(tmp_path: Path) -> None:
    import datetime

    import numpy as np

    plain = {"array": np.arange(5), "one": np.float32(2), "when": datetime.datetime(2026, 1, 2), "where": Path("a/b"), "s": {1, 2}}
    save(tmp_path, {"model": model(), "plain": plain})
    state: dict[str, Any] = {"model": model(), "plain": dict.fromkeys(plain)}
    Checkpointer(tmp_path).load(state)
    assert state["plain"]["array"].tolist() == [0, 1, 2, 3, 4]
    assert {**state["plain"], "array": 0} == {**plain, "array": 0}


def test_random_state_is_text() -> None:
    import numpy as np

    saved = RandomState().state_dict()
    drawn = random.random(), np.random.normal(), np.random.normal(), torch.rand(1).item()
    assert json.loads(saved["host"])["python"][0] == 3
    RandomState().load_state_dict(saved)
    assert (random.random(), np.random.normal(), np.random.normal(), torch.rand(1).item()) == drawn


def test_a_random_state_of_an_earlier_release_is_loaded_and_runs_no_code(tmp_path: Path) -> None:
    import numpy as np

    saved = {"host": pickle.dumps((random.getstate(), np.random.get_state())), "torch": torch.get_rng_state()}
    drawn = random.random(), np.random.normal()
    RandomState().load_state_dict(saved)
    assert (random.random(), np.random.normal()) == drawn
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        RandomState().load_state_dict({**saved, "host": pickle.dumps((Attack(tmp_path / "ran"), None))})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("readable", "file", "folder"), [("user", 0o600, 0o700), ("group", 0o640, 0o750), ("all", 0o644, 0o755)])
def test_who_may_read_a_step(tmp_path: Path, readable: str, file: int, folder: int) -> None:
    before = os.umask(0o000)
    try:
        step = save(tmp_path / "steps", {"model": model()}, readable=readable)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(one.stat().st_mode) for one in (step, step.parent)} == {folder}
    assert {stat.S_IMODE(one.stat().st_mode) for one in step.iterdir()} == {file}


def test_who_may_read_is_one_of_three(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="user, group, all"):
        Checkpointer(tmp_path, readable="everyone")


def test_memory_that_another_user_offers_is_not_taken(tmp_path: Path) -> None:
    """The bytes are right when they are hashed; their owner can change them afterwards."""
    step = save(tmp_path, {"model": model()})
    shard = next(one for one in read_manifest(step).shards if one.name != METADATA)
    data = (step / shard.name).read_bytes()
    name = socket_prefix(str(tmp_path), "node0") + "ffffffff-0"

    def offer(ready: Any) -> None:
        memory = os.memfd_create("offered")
        os.write(memory, data)
        listener = packet_socket()
        listener.bind("\0" + name)
        listener.listen(8)
        ready()
        while True:
            connection, _ = listener.accept()
            while (heard := receive_message(connection)) is not None:
                if heard[0]["do"] == "held":
                    one = {"hash": shard.hash, "list": 0, "slot": 0, "offset": 0, "bytes": shard.bytes}
                    send_message(connection, {"held": [one]})
                else:
                    send_message(connection, {}, (memory,))

    with running_as_nobody(offer):
        checkpointer = Checkpointer(tmp_path, node="node0")
        assert checkpointer.load({"model": model()}) == 10
        assert checkpointer.last_load is not None
        assert checkpointer.last_load.source == "storage"
