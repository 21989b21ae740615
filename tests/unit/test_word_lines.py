"""Lines with a word: the same as those that a reader of all lines would keep, however they are cut, coloured or broken."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from windtunnel.formats.text import lines as word_lines
from windtunnel.formats.text.lines import LogLines, WordLines

WORDS = ("iteration", "...", "time (ms)", "[batch=", "NCCL")
PIECES = (
    b"iteration", b" 12/ 100 |", b"...", b"time (ms)", b"NCCL", b"\x1b[32mstep\x1b[0m", b"\xff\xfe", "µs".encode(), b" loss: 1.0",
    b"\r", b"\r\n", b"\n", b"\n", b"\n\n", b"time", b" (ms", b"[batch", b"=", b"x" * 300,
)  # fmt: skip


def log(seed: int, size: int) -> bytes:
    draw = random.Random(seed)
    parts: list[bytes] = []
    total = 0
    while total < size:
        parts.append(draw.choice(PIECES))
        total += len(parts[-1])
    return b"".join(parts)


@pytest.mark.parametrize("together", [False, True], ids=["few", "many"])
@pytest.mark.parametrize("seed", range(6))
def test_lines_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, together: bool) -> None:
    """`together`: pieces are searched with pyarrow, however small they are."""
    monkeypatch.setattr(word_lines, "_SMALL", 0 if together else 2**40)
    path = tmp_path / "log.txt"
    path.write_bytes(log(seed, (20_000, 3_000_000)[seed % 2]))
    all_lines, found = LogLines(path), WordLines(path, WORDS)
    wanted = [line for line in all_lines if any(word in line for word in WORDS)]
    assert list(found) == wanted and len(wanted) > 10
    assert found.count == all_lines.count and found.broken == all_lines.broken


def test_lines_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("a\nNCCL 1\nb\nc\nNCCL 2\nd\n" + "e\n" * 3)
    lines = WordLines(path, WORDS)
    seen = []
    for text in lines:
        seen.append(text)
        lines.following = text in ("NCCL 1", "NCCL 2", "d")
    assert seen == ["NCCL 1", "b", "NCCL 2", "d", "e"] and lines.count == 9


def test_a_stream_that_breaks_off(tmp_path: Path) -> None:
    """All that was unpacked is read, and told."""
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"NCCL 1\nNCCL 2\n" * 5000)[:-40])
    lines = WordLines(path, WORDS)
    found = list(lines)
    assert len(found) > 1 and set(found) <= {"NCCL 1", "NCCL 2", *found[-1:]} and "breaks off" in lines.broken[0]
    assert lines.count == len(found)
