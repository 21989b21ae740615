"""What a stranger on the same machine or network can do to checkpoints: nothing. The half that needs no torch."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from helpers.other_user import running_as_nobody
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.fleet.checkpoint.flush_process import query_process
from windtunnel.fleet.checkpoint.manifest import METADATA, Manifest, ShardFile, hash_errors, hash_of
from windtunnel.fleet.checkpoint.memory import (
    MOST_UNKNOWN,
    BufferedFile,
    Neighbour,
    packet_socket,
    receive_message,
    send_copy,
    send_message,
    socket_names,
    socket_prefix,
)
from windtunnel.fleet.checkpoint.pickles import metadata_error
from windtunnel.fleet.checkpoint.sources import local_copies

DATA = b"the bytes of a shard"


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


ATTACKS = [
    os.system,
    os.popen,
    eval,
    exec,
    __import__,
    getattr,
    subprocess.Popen,
    pickle.loads,
    open,
    os.remove,
    io.open,
    breakpoint,
]


@pytest.mark.parametrize("function", ATTACKS, ids=lambda one: one.__qualname__)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_metadata_that_names_a_function_is_refused_by_its_name(function: Callable[..., Any], protocol: int) -> None:
    said = metadata_error(pickle.dumps({"fine": [1, Calls(function, "true")]}, protocol))
    assert said.endswith("which no checkpoint needs")
    assert function.__name__.split(".")[-1] in said


def test_a_name_with_dots_does_not_lead_out_of_an_allowed_module() -> None:
    """Protocol 4 takes `Size.__class__` of `torch` and walks the dots."""
    raw = b"\x80\x04\x8c\x05torch\x8c\x0eSize.__class__\x93."
    assert "Size.__class__" in metadata_error(raw)
    pickletools.dis(raw, io.StringIO())


@examples(200)
@given(st.binary(max_size=60))
def test_metadata_of_any_bytes_is_an_error_and_no_exception(raw: bytes) -> None:
    metadata_error(raw)


def test_a_planted_step_is_not_committed_in_the_eyes_of_verify(tmp_path: Path) -> None:
    raw = pickle.dumps(Calls(os.system, f"touch {tmp_path}/ran"))
    (tmp_path / METADATA).write_bytes(raw)
    manifest = Manifest(1, "ab", 1, 0.0, "0", (ShardFile(METADATA, len(raw), hash_of(raw), 0),), {})
    assert hash_errors(tmp_path, manifest) == [f".metadata names {os.system.__module__}.system, which no checkpoint needs"]
    assert not (tmp_path / "ran").exists()


def serve(name: str, answer: Callable[[socket.socket], object]) -> Callable[[Callable[[], None]], None]:
    """A process that takes a name of a flush process and gives every caller `answer`."""

    def listen(ready: Callable[[], None]) -> None:
        listener = packet_socket()
        listener.bind("\0" + name)
        listener.listen(8)
        ready()
        while True:
            connection, _ = listener.accept()
            with suppress(OSError):
                answer(connection)

    return listen


def offer(connection: socket.socket) -> None:
    """Says that it holds DATA."""
    receive_message(connection)
    send_message(connection, {"held": [{"hash": hash_of(DATA), "list": 0, "slot": 0, "offset": 0, "bytes": len(DATA)}]})


def hold(connection: socket.socket) -> None:
    """Never answers."""
    time.sleep(3600)


@pytest.mark.parametrize("answer", [offer, hold])
def test_another_user_who_answers_for_held_memory_is_not_heard(tmp_path: Path, answer: Callable[[socket.socket], object]) -> None:
    prefix = socket_prefix(str(tmp_path), "node0")
    with running_as_nobody(serve(prefix + "aa-0", answer)):
        began = time.monotonic()
        assert local_copies(prefix, settle=600.0) == {}
        assert query_process(prefix + "aa-0", {"do": "take", "list": 0, "slot": 0}, 600.0) is None
        assert time.monotonic() - began < 300.0, "it waited for a stranger"


def test_another_user_whose_queue_is_full_does_not_stall_a_load(tmp_path: Path) -> None:
    prefix = socket_prefix(str(tmp_path), "node0")

    def listen(ready: Callable[[], None]) -> None:
        listener = packet_socket()
        listener.bind(f"\0{prefix}aa-0")
        listener.listen(0)
        own = packet_socket()
        own.connect(f"\0{prefix}aa-0")
        ready()
        time.sleep(3600)

    with running_as_nobody(listen):
        began = time.monotonic()
        assert local_copies(prefix, settle=600.0) == {}
        assert time.monotonic() - began < 300.0, "it waited for a stranger's queue"


@pytest.mark.parametrize(
    "message",
    [b"no JSON", b"[1]", b'{"nope": 1}', b'{"held": 3}', b'{"held": [{"hash": "a"}]}',
     b'{"held": [{"hash": "a", "list": -1, "slot": 0, "offset": 0, "bytes": 1}]}',
     b'{"held": [{"hash": 7, "list": 0, "slot": 0, "offset": 0, "bytes": 1}]}'],
)  # fmt: skip
def test_an_answer_that_is_none_of_ours_is_no_copy(tmp_path: Path, message: bytes) -> None:
    """Of a process of the same user, such as one of another release."""
    prefix = socket_prefix(str(tmp_path), "node0")
    name = prefix + "aa-0"
    child = os.fork()
    if child == 0:
        try:
            serve(name, lambda connection: connection.send(message))(lambda: None)
        finally:
            os._exit(0)
    try:
        end = time.monotonic() + 60.0
        while not socket_names(prefix):
            assert time.monotonic() < end, "no process listens"
            time.sleep(0.01)
        assert local_copies(prefix, settle=5.0) == {}
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_idle_strangers_do_not_block_copies_of_a_neighbour() -> None:
    neighbour = Neighbour("the token")
    address = ("127.0.0.1", neighbour.listen("127.0.0.1"))
    file = BufferedFile("a", 0, len(DATA), hash_of(DATA))
    idle = [socket.create_connection(address) for _ in range(3 * MOST_UNKNOWN)]
    began = time.monotonic()
    send_copy(address, "the token", "ab", 7, [(file, memoryview(DATA))])
    assert time.monotonic() - began < 30.0, "it waited for a stranger"
    assert [(one["name"], one["step"]) for one in neighbour.held.describe()] == [("a", 7)]
    with pytest.raises(OSError):
        send_copy(address, "another token", "ab", 8, [(file, memoryview(DATA))])
    assert [one["step"] for one in neighbour.held.describe()] == [7]
    for one in idle:
        one.close()
