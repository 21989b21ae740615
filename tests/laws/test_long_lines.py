"""Does a text of one character or word, repeated, take a time that grows no faster than it does?"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.base.text import redact
from windtunnel.formats.door import read_files

LENGTH = 20_000
MOST_CPU_SECONDS = 1.5
"""A pattern that looks at each pair of characters takes 3 to 15; the readers together take 0.1."""
REPEATED = [
    "9", "a", "A", "rl", " ", "\t", "\n", "\n ", "x\n", "ab ", "1 ", "1.", "1e", "1:", "a=1 ", "a: ", "a/b", "a.", "a_", "a,1",
    "-", "--a ", "--x=1 ", "/", "(", "[", "[1]", "{", '{"a":', '"', ":", "=", ",", "| ", "\\", "a\\\n", "- a\n", "$", "#", "key",
    "-key=", "export A=",
]  # fmt: skip


@pytest.mark.parametrize("suffix", [".log", ".sh"])
@pytest.mark.parametrize("word", REPEATED)
def test_a_repeated_word_is_read_in_time(word: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_text("x = " + word * (LENGTH // len(word)), encoding="utf-8")
    began = time.process_time()
    with suppress(WindtunnelError):
        read_files([path])
    assert time.process_time() - began < MOST_CPU_SECONDS


@pytest.mark.parametrize("word", REPEATED)
def test_secrets_are_looked_for_in_time(word: str) -> None:
    text = word * (LENGTH // len(word))
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < MOST_CPU_SECONDS
