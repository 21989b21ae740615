"""The process of a question reads its uploads and the installation, writes its own folder, and reaches no network."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from windtunnel.service.work.confine import confine, installation, landlock_version


def confined(scratch: Path, act: Callable[[], object], python_alone: bool = False, also: Sequence[Path] = ()) -> str:
    """The name of the error that `act` raises in a confined process that may read `also`; empty if none."""
    readable = [*installation(), *also]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "?"
        try:
            os.chdir(scratch)
            if python_alone:
                from windtunnel.service.work import confine as walls

                walls._hook(os.path.realpath(scratch), [str(path) for path in readable])
            else:
                confine(scratch, readable)
            act()
            said = ""
        except BaseException as error:
            said = type(error).__name__
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as file:
        return file.read().decode()


def read(path: str | Path) -> Callable[[], object]:
    return lambda: Path(path).read_bytes()


def linked(target: Path) -> Callable[[], object]:
    return lambda: Path("link").read_bytes()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    (made / "upload").write_text("x")
    (tmp_path / "secret").write_text("s")
    (made / "link").symlink_to(tmp_path / "secret")
    return made


@pytest.mark.parametrize("python_alone", [False, True])
def test_it_works_where_it_should(scratch: Path, python_alone: bool) -> None:
    import windtunnel

    catalogue = Path(str(windtunnel.__file__)).parent / "catalog"
    entry = next(catalogue.rglob("*.toml"))
    for act in (
        read("upload"),
        read(entry),
        lambda: Path("new").write_text("y"),
        lambda: os.listdir(catalogue),
        lambda: Path("d").mkdir(),
    ):
        assert confined(scratch, act, python_alone) == ""


INDEX = """
import os, sys
from pathlib import Path
from windtunnel.fleet.collect.index import CompactedSegment, RunIndex
from windtunnel.fleet.collect.registry import Rings
index = RunIndex(f"sqlite:///{sys.argv[1]}", create=True)
index.add(CompactedSegment(7), Rings())
if sys.argv[2] == "killed":
    os._exit(0)
index.close()
"""


@pytest.mark.parametrize("left", ["closed", "killed"])
@pytest.mark.parametrize("python_alone", [False, True])
def test_the_index_of_a_readable_run_is_read_and_not_touched(scratch: Path, python_alone: bool, left: str) -> None:
    folder = scratch.parent / "run #1"
    folder.mkdir()
    file = folder / "index.db"
    subprocess.run([sys.executable, "-c", INDEX, str(file), left], check=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert ("index.db-wal" in before) == (left == "killed")

    def look() -> None:
        from windtunnel.fleet.collect.index import RunIndex

        assert RunIndex(f"sqlite:///{file}", create=False).read().compacted == 7

    def change() -> None:
        with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as connection:
            connection.execute("delete from wt_state")

    assert confined(scratch, look, python_alone, [folder]) == ""
    if left == "closed":
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert confined(scratch, change, python_alone, [folder]) == "OperationalError"
    for address in (str(file), f"{file.as_uri()}?mode=rw", f"{file.as_uri()}#?mode=ro", f"{file.as_uri()}?mode=ro&vfs=unix-none"):
        act = partial(sqlite3.connect, address, uri=address.startswith("file:"))
        assert confined(scratch, act, python_alone, [folder]) == "PermissionError", address
    assert confined(scratch, look, python_alone) == "FileError"


@pytest.mark.parametrize("python_alone", [False, True])
def test_it_reads_and_writes_nothing_else(scratch: Path, python_alone: bool) -> None:
    secret = scratch.parent / "secret"
    acts: list[Callable[[], object]] = [
        read(secret), read("../secret"), read("link"), read("/etc/passwd"), read("/proc/1/environ"),
        lambda: os.listdir("/"), lambda: os.listdir(scratch.parent), lambda: secret.write_text("z"), lambda: secret.unlink(),
        lambda: os.rename("upload", scratch.parent / "moved"), lambda: (scratch.parent / "made").write_text("z"),
        lambda: installation()[0].joinpath("made").write_text("z"), lambda: os.symlink("/etc/passwd", "other"),
        lambda: os.chmod(secret, 0o777), lambda: sqlite3.connect(secret),
        lambda: sqlite3.connect(f"file:{secret}?mode=ro", uri=True), lambda: sqlite3.connect("file:../secret?mode=rw", uri=True),
    ]  # fmt: skip
    for number, act in enumerate(acts):
        assert confined(scratch, act, python_alone) in ("PermissionError", "OSError"), number
    assert secret.read_text() == "s" and not (scratch.parent / "moved").exists()


def test_it_reaches_nobody(scratch: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        acts: list[Callable[[], object]] = [
            lambda: socket.create_connection(("127.0.0.1", port), 1), lambda: socket.getaddrinfo("localhost", 80),
            lambda: socket.socket().bind(("127.0.0.1", 0)), lambda: subprocess.run(["true"]), lambda: os.system("true"),
            lambda: os.execv("/bin/true", ["true"]), lambda: os.kill(os.getppid(), signal.SIGTERM),
        ]  # fmt: skip
        for number, act in enumerate(acts):
            assert confined(scratch, act) in ("PermissionError", "OSError"), number


@pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
def test_native_code_is_held_too(scratch: Path) -> None:
    """What libc opens goes past Python's hook, and not past the kernel."""

    def through_libc() -> None:
        handle = ctypes.CDLL(None, use_errno=True).open(str(scratch.parent / "secret").encode(), os.O_RDONLY)
        if handle < 0:
            raise PermissionError(ctypes.get_errno())

    assert confined(scratch, through_libc) == "PermissionError"
    assert confined(scratch, through_libc, python_alone=True) == ""


def test_pickles_are_refused(scratch: Path) -> None:
    import pickle

    data = pickle.dumps(os.getcwd)
    assert confined(scratch, lambda: pickle.loads(data)) == "PermissionError"
