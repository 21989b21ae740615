"""The ring: what is written is read, after a kill too; a ring that went round loses the oldest, and says how many."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import ROWS, RingReader, RingWriter, RowState
from windtunnel.records.sections import Section, Sections, join_sections


def test_what_is_written_is_read(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", "job", 3, 8, 3, host="node0", facts={"tp": 2})
    name, group = writer.text("name", "all_reduce"), writer.text("group", {"name": "dp", "ranks": [0, 4]})
    writer.at_step(7)
    row = writer.write(Section.CALL, 7, 1_000, name=name, group=group, comm=1, size=4096, call=5)
    reader = RingReader(tmp_path / "ring")
    assert (reader.meta.rank, reader.meta.world, reader.meta.host, reader.meta.facts) == (3, 8, "node0", {"tp": 2})
    assert reader.read(0).rows["state"].tolist() == [RowState.OPEN]
    writer.rewrite(row, 250, 300, RowState.DONE)
    tail = reader.read(0)
    assert tail.rows[["nanos", "host_nanos", "state", "bytes", "call", "step"]].tolist() == [(250, 300, RowState.DONE, 4096, 5, 7)]
    assert reader.lines() == [("name", "all_reduce"), ("group", {"name": "dp", "ranks": [0, 4]})]
    assert (tail.step, tail.ended, tail.lost) == (7, None, 0)
    writer.mark_ended(0)
    assert reader.read(0).ended == 0


def test_a_full_ring_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", "job", 0, 1, rows=8)
    rows = [writer.write(Section.STEP, step, step) for step in range(20)]
    tail = RingReader(tmp_path / "ring").read(5)
    assert (tail.first, tail.lost, tail.rows["step"].tolist()) == (12, 7, list(range(12, 20)))
    writer.rewrite(rows[0], 1, 1, RowState.DONE)  # long gone: touches nobody's row
    assert RingReader(tmp_path / "ring").read(0).rows["state"].tolist() == [RowState.OPEN] * 8


def test_records_outlive_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from windtunnel.fleet.ring import RingWriter\n"
        "w = RingWriter(Path(sys.argv[1]), 'job', 0, 1)\n"
        "for step in range(1000): w.write(0, step, step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "ring")], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert RingReader(tmp_path / "ring").read(0).rows["step"].tolist() == list(range(1000))


def test_the_text_area_is_bounded(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", "job", 0, 1)
    numbers = [writer.text("name", f"{index:06d}" * 100) for index in range(3000)]
    assert numbers[0] == 0 and numbers[-1] == -1
    assert len(RingReader(tmp_path / "ring").lines()) == sum(number >= 0 for number in numbers)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 5000)
    with pytest.raises(FileError):
        RingReader(tmp_path / "other")


def test_joined_tables_number_names_and_groups_anew() -> None:
    first = Sections.of(
        [0], [1], [4], [0.5], [0.1], name=[0], group=[0], names=("a",), groups=((0, 1),), group_names=("dp",), zero=10.0
    )
    second = Sections.of([1], [1], [4], [0.25], [0.1], name=[1], group=[-1], names=("b", "a"), zero=11.0, hosts={1: "n"})
    both = join_sections([first, second])
    assert both.names == ("a", "b") and both.name.tolist() == [0, 0] and both.group.tolist() == [0, -1]
    assert np.allclose(both.begin, [0.5, 1.25]) and both.zero == 10.0 and both.hosts == {1: "n"}
    assert len(join_sections([])) == 0


def test_a_process_that_waits_for_a_core_is_not_silent_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = [7_000]
    monkeypatch.setattr("windtunnel.fleet.ring.waited_for_core", lambda pid: waited[0])
    writer = RingWriter(tmp_path / "here.ring", "run", 0, 1)
    elsewhere = RingWriter(tmp_path / "there.ring", "run", 1, 2, host="another-machine")
    reader, other = RingReader(tmp_path / "here.ring"), RingReader(tmp_path / "there.ring")
    beat, apart = reader.read(0).beat_ns, other.read(0).beat_ns
    waited[0] += 1_500
    assert reader.read(0).beat_ns == beat + 1_500
    assert other.read(0).beat_ns == apart  # another process may have its number here
    waited[0] = 0  # the kernel does not say, or the process is gone
    assert reader.read(0).beat_ns == beat
    for one in (writer, elsewhere, reader, other):
        one.close()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system on which 1 MiB is left: a sparse ring can be made there, and not be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        with (folder / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 7 << 20)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run_ring(disk: Path) -> subprocess.CompletedProcess[str]:
    """A process that makes a ring, fills the disk, and writes into all of the ring."""
    script = (
        "import os, sys; from pathlib import Path; from windtunnel.base.errors import FileError\n"
        "from windtunnel.fleet.ring import ROWS, RingWriter, append_end\n"
        "disk = Path(sys.argv[1])\n"
        "try: writer = RingWriter(disk / 'ring', 'job', 0, 1)\n"
        "except FileError as error: sys.exit(f'{error}')\n"
        "room = os.statvfs(disk)\n"
        "with open(disk / 'rest', 'wb') as file: os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)\n"
        "for step in range(ROWS + 5): writer.write(0, step, step)\n"
        "append_end(disk / 'ring', 0, 'exit status 3')\n"
    )
    return subprocess.run([sys.executable, "-c", script, str(disk)], capture_output=True, text=True, check=False)


def test_a_full_disk_refuses_the_ring_and_ends_no_process(full_disk: Path) -> None:
    ended = run_ring(full_disk)
    assert ended.returncode == 1, ended  # -SIGBUS before the ring was reserved
    assert "No space left on device" in ended.stderr and "room for 5.004 MiB" in ended.stderr and ended.stderr.count("\n") == 1
    assert not (full_disk / "ring").exists()


def test_a_ring_that_was_made_has_all_of_its_room(full_disk: Path) -> None:
    (full_disk / "ballast").unlink()
    ended = run_ring(full_disk)
    assert ended.returncode == 0, ended
    assert RingReader(full_disk / "ring").read(0).rows["step"][-2] == ROWS + 4


TORCH = """
import types
__version__ = "none"
cuda = types.SimpleNamespace(is_available=lambda: False)
"""
JOB = """
import torch, torch.distributed, os
torch.distributed.init_process_group()
print("trained")
"""


@pytest.mark.parametrize("rank", ["0", ""], ids=["with a rank", "waits for its rank"])
def test_a_job_whose_ring_has_no_room_goes_on_unwatched(full_disk: Path, tmp_path: Path, rank: str) -> None:
    """The monitor fails before it touches torch, so that a torch of a few lines is enough here."""
    stub = tmp_path / "stub" / "torch"
    for name, text in {
        "__init__.py": TORCH,
        "distributed.py": "is_available = lambda: True\nis_initialized = get_rank = lambda: 0\ndef init_process_group(): pass\n",
        "optim/__init__.py": "",
        "optim/optimizer.py": "import types\nregister_optimizer_step_pre_hook = lambda hook: types.SimpleNamespace(remove=print)\n",
    }.items():
        (stub / name).parent.mkdir(parents=True, exist_ok=True)
        (stub / name).write_text(text)
    script = tmp_path / "train.py"
    script.write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"PYTHONPATH": str(stub.parent)} | ({"RANK": rank, "WORLD_SIZE": "1"} if rank else {})
    command = ["fleet", "run", "--no-monitor", "--dir", str(full_disk), "--run", "job", "--", sys.executable, str(script)]
    ended = subprocess.run(
        [sys.executable, "-m", "windtunnel", *command], env=environment, capture_output=True, text=True, check=False
    )
    told = [line for line in ended.stderr.splitlines() if "not watched" in line]
    assert ended.returncode == 0 and "trained" in ended.stdout, ended
    assert len(told) == 1 and "No space left on device" in told[0], ended.stderr
    assert "Traceback" not in ended.stderr
