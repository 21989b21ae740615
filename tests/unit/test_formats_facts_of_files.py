"""Facts of several files in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windtunnel.formats.reading import Context
from windtunnel.formats.text.lines import add_facts, facts_of_logs


def test_the_first_file_stands_alone_and_further_ones_by_name() -> None:
    facts: dict[str, Any] = {}
    for name, own in (("a", {}), ("b", {"rows": 1}), ("c", {"rows": 2})):
        add_facts(facts, Path("folder") / name, own)
    assert facts == {"rows": 1, "c": {"rows": 2}}


def test_lines_of_each_file_are_read_and_what_is_broken_is_kept(tmp_path: Path) -> None:
    for name, data in (("a.log", b"x\ny\n"), ("b.log", b"\xff\n")):
        (tmp_path / name).write_bytes(data)
    files = [tmp_path / "a.log", tmp_path / "b.log"]
    facts, broken = facts_of_logs(files, Context(), lambda lines: {"lines": len(list(lines))})
    assert facts == {"lines": 2, "b.log": {"lines": 1}}
    assert len(broken) == 1 and "not UTF-8" in broken[0]
