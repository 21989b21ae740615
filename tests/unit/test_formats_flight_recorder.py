"""Dumps of the flight recorder of several versions, of jobs that hang and of jobs that do not."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from windtunnel.formats.door import read_files


def entry(number: int, state: str = "completed") -> dict[str, Any]:
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number, "op_id": number,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 10**9 * number, "input_sizes": ((1024,),),
        "input_dtypes": ["BFloat16"], "output_sizes": ((1024,),), "output_dtypes": ["BFloat16"], "state": state,
        "retired": state == "completed", "is_p2p": False,
    }  # fmt: skip


def dump(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": "2.3", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "entries": list(entries)}


def test_calls_that_have_all_ended_are_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "trace_0"
    path.write_bytes(gzip.compress(pickle.dumps(dump(entry(1), entry(2)))))
    reading = read_files([path])
    assert reading.facts["hang"] is None and reading.facts["entries"] == 2


def test_ranks_without_a_dump_are_told(tmp_path: Path) -> None:
    for rank, last in enumerate(("scheduled", "completed")):
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(dump(entry(1), entry(2, last))))
    alone = read_files([tmp_path / "trace_0"])
    assert list(alone.facts["hang"]["culprits"]) == ["1"] and any("1 of 2 ranks" in note for note in alone.assumed)
    assert not any("ranks left no dump" in note for note in read_files([tmp_path]).assumed)


@pytest.mark.parametrize("whole", [True, False])
def test_the_first_recorders_wrote_entries_alone(tmp_path: Path, whole: bool) -> None:
    old = entry(3)
    old["seq_id"] = old.pop("collective_seq_id")
    path = tmp_path / "trace_0"
    path.write_bytes(pickle.dumps({"version": "1.5", "entries": [old]} if whole else [old]))
    reading = read_files([path])
    assert reading.format == "flight-recorder" and reading.facts["per_rank"]["0"]["last"]["seq"] == 3
