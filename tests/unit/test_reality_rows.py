"""Are tables of measurements read without inventing or losing a row?"""

from __future__ import annotations

from pathlib import Path

import pytest
from row_columns import COLLECTIVE, TRAINING

from windtunnel.base.errors import FileError, SpecError
from windtunnel.reality.rows.table import parse, read

HEADER = ",".join(TRAINING)
ROW = "X1,F,megatron,gpt,24,1024,16,4096,1024,64,,a100-sxm-80gb,8,8,none,1,1,8,none,full,bf16,0.5"


def test_blank_is_none_and_never_zero() -> None:
    row = parse(f"{HEADER}\n{ROW}\n").training[0]
    assert row.mbs is None and row.vocab is None and row.notes is None and row.vpp is None
    assert row.gbs == 64 and row.iter_time_s == 0.5


def test_bad_numbers_put_the_row_aside_with_the_reason() -> None:
    rows = [
        ROW.replace("X1", f"X{n}").replace(",64,", f",{bad},")
        for n, bad in enumerate(("many", "-3", "nan", "inf", "1e400", "6.5", "0x10", "1" * 30))
    ]
    table = parse("\n".join([HEADER, *rows, ROW.replace("X1", "good")]))
    assert [row.id for row in table.training] == ["good"]
    assert [bad.id for bad in table.unreadable] == [f"X{n}" for n in range(8)]
    assert all("gbs" in bad.reason for bad in table.unreadable)


def test_short_rows_and_repeated_ids_are_named() -> None:
    table = parse("\n".join([HEADER, ROW, ROW, "X2,F", ",F" + ROW[4:]]))
    assert len(table.training) == 1 and len(table.unreadable) == 3
    assert "already" in table.unreadable[0].reason


def test_missing_columns_are_named() -> None:
    with pytest.raises(SpecError, match="missing: gbs"):
        parse(HEADER.replace(",gbs", "") + "\n")
    with pytest.raises(SpecError, match="missing: time_us"):
        parse(",".join(COLLECTIVE[:-1]) + "\n")
    for text in ("", "a,b\n1,2\n", "\n\n"):
        with pytest.raises(SpecError):
            parse(text)


def test_unknown_columns_are_listed() -> None:
    assert parse(f"{HEADER},colour\n{ROW},red\n").ignored == ("colour",)


def test_kind_follows_from_the_columns() -> None:
    calls = parse(",".join(COLLECTIVE) + "\nC1,F,h100-sxm-80gb,8,2,16,ib,all_reduce,1048576,100.5\n")
    assert calls.kind == "collective" and calls.collective[0].bytes == 2**20 and calls.families == {"F"}


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for path in (tmp_path, tmp_path / "absent.csv", tmp_path / "binary.csv"):
        with pytest.raises(FileError):
            read(path)
    (tmp_path / "odd.csv").write_text(HEADER + '\n"unclosed', encoding="utf-8")
    assert read(tmp_path / "odd.csv").unreadable
