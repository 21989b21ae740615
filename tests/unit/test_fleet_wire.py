"""Strangers are refused: wrong tokens, certificates, messages, stale drivers, folders and commands that are none of the job's."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import stat
import tracemalloc
from asyncio import sslproto
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windtunnel.base.errors import FileError
from windtunnel.fleet.driver.detect import DetectionLimits
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.fleet.wire.channel import READ_BYTES, STRANGER_LIMIT, Channel, connect, listen
from windtunnel.fleet.wire.messages import (
    AgentBeat,
    AskRankStatus,
    FromAgent,
    FromDriver,
    Hello,
    Kill,
    OrderAnswer,
    RankStatus,
    RunTest,
    StartRanks,
    Welcome,
    is_inside,
    refusal,
)  # fmt: skip
from windtunnel.fleet.wire.secrets import FILE, KEY, Secrets, make_secrets, read_secrets

pytest.importorskip("cryptography")


class Peer:
    """One connection of an agent to a roster, and what came of it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.lost = asyncio.Event()

    def channel(self) -> Channel:
        return Channel(FromDriver, lambda channel, message: self.heard.append(message), lambda channel, why: self.lost.set())


def _meet(folder: Path, say: list[Any], secrets: Secrets | None = None, unix: bool = False) -> tuple[Roster, Peer]:
    """A roster with the node n0, and a peer that says these messages, until the roster has answered or closed."""

    async def meet() -> tuple[Roster, Peer]:
        right = make_secrets(folder)
        roster = Roster(right, DetectionLimits(), fence=7, nodes={"n0": AgentNode("n0")})
        server, address = await listen(f"unix:{folder / 's'}" if unix else "127.0.0.1:0", right, folder, roster.channel)
        peer = Peer()
        try:
            channel = await connect(address, secrets or right, peer.channel)
        except OSError:
            server.close()
            await asyncio.sleep(0.1)  # the server's end of it closes too
            raise
        for message in say:
            if isinstance(message, bytes):
                assert channel._transport is not None
                channel._transport.write(message)
            else:
                channel.send(message)
        async with asyncio.timeout(20):
            while not peer.lost.is_set() and not peer.heard:
                await asyncio.sleep(0.01)
        channel.close()
        server.close()
        return roster, peer

    return _run(meet())


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize("unix", [False, True])
def test_an_agent_with_the_token_is_taken(tmp_path: Path, unix: bool) -> None:
    token = make_secrets(tmp_path).token
    roster, peer = _meet(tmp_path, [Hello(token, "n0", "host", 1)], unix=unix)
    assert peer.heard == [Welcome(7)]
    assert roster.refused == []


@pytest.mark.parametrize(
    ("say", "why"),
    [
        ([Hello("wrong", "n0", "host", 1)], "a wrong token"),
        ([Hello("", "n0", "host", 1)], "a wrong token"),
        ([Hello("ü\ud800", "n0", "host", 1)], ""),
        ([AgentBeat(1.0)], "a message of a stranger"),
        ([b"\xff\xff\xff\x7fxxxx"], ""),
        ([(STRANGER_LIMIT + 1).to_bytes(4, "little") + b"x" * 100], ""),
        ([b"\x05\x00\x00\x00GET /"], ""),
    ],
)
def test_a_stranger_is_refused_and_named(tmp_path: Path, say: list[Any], why: str) -> None:
    if "\ud800" in getattr(say[0], "token", ""):
        say = [b"\x02\x00\x00\x00\xa1\xff"]
    roster, peer = _meet(tmp_path, say)
    assert peer.lost.is_set()
    assert peer.heard == []
    assert not roster.is_connected("n0")
    assert not why or why in roster.refused[0]


def test_a_node_that_is_not_of_the_job_is_refused(tmp_path: Path) -> None:
    token = make_secrets(tmp_path).token
    roster, peer = _meet(tmp_path, [Hello(token, "n9", "host", 1)])
    assert peer.lost.is_set()
    assert "no node of this job" in roster.refused[0]


def test_a_driver_with_another_certificate_is_refused(tmp_path: Path) -> None:
    other = make_secrets(tmp_path / "other")
    with pytest.raises(ssl.SSLError):
        _meet(tmp_path, [], other)


def test_what_is_secret_is_the_owners_alone(tmp_path: Path) -> None:
    made = make_secrets(tmp_path)
    for name in (FILE, KEY):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert make_secrets(tmp_path) == made == read_secrets(tmp_path / FILE)
    assert "PRIVATE" not in (tmp_path / FILE).read_text(encoding="utf-8")
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(FileError, match="chmod 600"):
        read_secrets(tmp_path / FILE)


def test_the_socket_is_the_owners_alone(tmp_path: Path) -> None:
    _meet(tmp_path, [Hello(make_secrets(tmp_path).token, "n0", "host", 1)], unix=True)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600


def test_tokens_are_compared_whole() -> None:
    secrets = Secrets("abc", "")
    assert secrets.knows("abc")
    assert not any(secrets.knows(word) for word in ("", "ab", "abcd", "abx", "äbc"))


def _start(job: Path, **changed: Any) -> StartRanks:
    fields = {
        "fence": 3, "order": 1, "attempt": 0, "argv": ("python", "train.py"), "first": 0, "count": 2, "world": 4, "node_rank": 0,
        "address": "127.0.0.1", "port": 1, "run": "r", "folder": str(job),
    }  # fmt: skip
    return StartRanks(**{**fields, **changed})  # type: ignore[arg-type]


def test_a_command_of_the_job_is_done(tmp_path: Path) -> None:
    start = _start(tmp_path, checkpoint=str(tmp_path / "checkpoints"), variables={"A_1": "x; rm -rf /"})
    assert refusal(start, 3, (str(tmp_path),)) == ""


def test_a_stale_driver_is_refused(tmp_path: Path) -> None:
    assert "stale" in refusal(_start(tmp_path), 4, (str(tmp_path),))
    assert "stale" in refusal(Kill(3, 1, 0), 4, ())
    assert refusal(Kill(4, 1, 0), 4, ()) == ""


def test_a_checkpoint_path_outside_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "link").symlink_to("/etc")
    for path in ("/etc", str(job / ".." / "other"), "relative", str(job / "link" / "x"), f"{tmp_path}/jobs", "\0"):
        assert not is_inside(path, (str(job),))
        assert "checkpoint" in refusal(_start(job, checkpoint=path), 0, (str(job),)), path
        assert "folder" in refusal(_start(job, folder=path), 0, (str(job),)), path


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": ()}, {"argv": ("",)}, {"argv": ("a\0b",)}, {"first": 3}, {"first": -1}, {"count": 0},
        {"variables": {"LD_PRELOAD": "x.so"}}, {"variables": {"A=B": "x"}}, {"variables": {"A": "\0"}},
    ],
)  # fmt: skip
def test_odd_commands_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert refusal(_start(tmp_path, **changed), 0, (str(tmp_path),))


def test_a_self_test_is_a_name(tmp_path: Path) -> None:
    assert refusal(RunTest(1, 1, "memory-copy"), 0, ()) == ""
    assert refusal(RunTest(1, 1, "../x"), 0, ())
    assert refusal(RunTest(1, 1, "-m"), 0, ())


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    from windtunnel.fleet.agent.keeper import _spawn_rank

    log = tmp_path / "log"
    pid = _spawn_rank(["/bin/echo", "$(id)", ";", "touch", str(tmp_path / "made")], {}, str(log), str(tmp_path))
    os.waitpid(pid, 0)
    assert log.read_text(encoding="utf-8") == f"$(id) ; touch {tmp_path / 'made'}\n"
    assert not (tmp_path / "made").exists()


def test_a_tls_connection_costs_little_and_bears_the_largest_message(tmp_path: Path) -> None:
    """Buffers of 16 connections, both ends, as Python counts them; then a message of 3 MiB, far beyond what is read at once."""

    async def meet() -> tuple[float, Any]:
        secrets, peer = make_secrets(tmp_path), Peer()
        heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        server, address = await listen(
            "127.0.0.1:0",
            secrets,
            tmp_path,
            lambda: Channel(FromAgent, lambda channel, message: heard.set_result(message), _nothing),
        )
        channels = [await connect(address, secrets, peer.channel)]
        gc.collect()
        tracemalloc.start()
        channels += [await connect(address, secrets, peer.channel) for _ in range(16)]
        cost = tracemalloc.get_traced_memory()[0] / 16
        tracemalloc.stop()
        channels[0].send(Hello("x" * (3 << 20), "n0", "host", 1))
        async with asyncio.timeout(20):
            message = await heard
        for channel in channels:
            channel.close()
        server.close()
        await asyncio.sleep(0.1)
        return cost, message

    cost, message = asyncio.run(meet())
    assert len(message.token) == 3 << 20
    assert cost < 2 * 64 * 1024
    assert sslproto.SSLProtocol.max_size > READ_BYTES  # other TLS connections of the process keep asyncio's buffer


def test_names_on_the_wire_do_not_follow_those_in_python() -> None:
    """Drivers and agents of one protocol version understand each other."""
    assert msgspec.to_builtins(AskRankStatus(1, 2)) == {"type": "AskStands", "fence": 1, "order": 2}
    assert msgspec.to_builtins(OrderAnswer(1, rank_status=(RankStatus(3),)))["stands"][0]["rank"] == 3


def _nothing(channel: Channel, why: str) -> None:
    """Nobody asks."""
