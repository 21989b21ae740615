"""A file that is written as it is measured: taken up again, never mixed, never broken by one bad row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.profile.session import Session, key_of, raise_rates
from windtunnel.records import About, read

ABOUT = About(
    "a-gpu",
    device="A GPU",
    driver="1",
    libraries={"torch": "2.13.0"},
    datasheet={"peak.bf16": 1e12, "l2": 1e6, "memory_bandwidth": 1e11},
)


def row(n: int = 64, **other: Any) -> dict[str, Any]:
    return {
        "level": "kernel",
        "op": "gemm",
        "name": "up",
        "phase": "forward",
        "dtype": "bf16",
        "mode": "eager",
        "m": 128,
        "n": n,
        "k": 64,
        "seconds": 1e-3,
        "status": "ok",
        "source": "a test",
        **other,
    }


def test_written_and_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with Session(path, ABOUT) as session:
        session.add(row(64))
    with Session(path, ABOUT, resume=True) as session:
        assert session.has_row(key_of(row(64))) and not session.has_row(key_of(row(65)))
        session.add(row(65))
    assert len(read(path)) == 2 and [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_what_asked_for_a_shape_is_no_part_of_it() -> None:
    assert key_of(row(model="one")) == key_of(row(model="other", kernel="sm90_gemm"))
    assert key_of(row(mode="compile")) != key_of(row())


def test_a_row_replaces_its_own_key(tmp_path: Path) -> None:
    with Session(tmp_path / "a.parquet", ABOUT) as session:
        session.add(row())
        session.add(row(kernel="sm90_gemm", launches=1))
    assert [one["kernel"] for one in read(tmp_path / "a.parquet").rows()] == ["sm90_gemm"]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    with Session(tmp_path / "a.parquet", ABOUT) as session:
        session.add(row())
    with pytest.raises(FileError, match="--resume"):
        Session(tmp_path / "a.parquet", ABOUT)


@pytest.mark.parametrize("other", [{"gpu": "b-gpu"}, {"driver": "2"}, {"libraries": {"torch": "2.12.0"}}])
def test_two_profiles_are_never_mixed(tmp_path: Path, other: dict[str, Any]) -> None:
    with Session(tmp_path / "a.parquet", ABOUT) as session:
        session.add(row())
    with pytest.raises(SpecError, match="never mixed"):
        Session(tmp_path / "a.parquet", replace(ABOUT, **other), resume=True)


def test_an_error_inside_keeps_what_was_measured(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Session(tmp_path / "a.parquet", ABOUT) as session:
        session.add(row())
        raise KeyboardInterrupt
    assert len(read(tmp_path / "a.parquet")) == 1


def test_a_time_that_cannot_be_is_kept_apart(tmp_path: Path) -> None:
    """2e15 FLOP/s is twice what an H200 has; no execution takes no time at all."""
    with Session(tmp_path / "a.parquet", About("h200-sxm-141gb", "NVIDIA H200")) as session:
        assert session.add(row(64)) == ""
        assert session.add(row(65, flops=2e13, seconds=1e-2)) == ""
        assert "positive" in session.add(row(66, seconds=0.0))
    by_n = {one["n"]: one for one in read(tmp_path / "a.parquet").rows()}
    assert sorted(by_n) == [64, 65] and by_n[64]["status"] == "ok"
    assert by_n[65]["status"] == "open" and "at least" in by_n[65]["note"]


def test_nothing_is_written_without_rows(tmp_path: Path) -> None:
    with Session(tmp_path / "a.parquet", ABOUT):
        pass
    assert not list(tmp_path.iterdir())


def test_a_measured_sheet_is_never_below_the_rows() -> None:
    rows = [row(flops=4e9, bytes=1e6), row(flops=1e9, bytes=5e8, seconds=1e-3), row(flops=9e12, status="oom", seconds=None)]
    assert raise_rates(ABOUT.datasheet, rows) == {"peak.bf16": 4e12, "l2": 1e6, "memory_bandwidth": 5e11}
    assert raise_rates({}, rows) == {}
