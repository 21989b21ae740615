"""Last words as PyTorch's own code of this version prints them: torchrun's table, torchfrtrace's text."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from windtunnel.formats.door import read_files

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _hang(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "job.log"
    path.write_text(text, encoding="utf-8")
    return dict(read_files([path]).facts["hang"])


@pytest.mark.parametrize(("code", "said"), [(-9, "SIGKILL"), (-11, "segmentation fault"), (1, "exception of Python")])
def test_torchruns_own_table_is_read(code: int, said: str, tmp_path: Path) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    none = str(tmp_path / "none")
    failures = {
        rank: ProcessFailure(local_rank=rank, pid=1000 + rank, exitcode=code if rank == 5 else -15, error_file=none)
        for rank in (5, 2)
    }  # fmt: skip
    failures[5].timestamp, failures[2].timestamp = 1_700_000_000, 1_700_000_009
    hang = _hang(
        tmp_path,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: " + str(ChildFailedError("train.py", failures)),
    )
    assert list(hang["culprits"]) == ["5"] and said in hang["text"] and "rank 2 failed after it" in hang["text"]


def _entry(expected: set[int]) -> Any:
    types = pytest.importorskip("torch.distributed.flight_recorder.components.types")
    entry = {
        "process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce", "collective_seq_id": 17, "p2p_seq_id": 0,
        "record_id": 16, "input_sizes": [[4096]], "output_sizes": [[4096]], "state": "scheduled", "frames": [],
    }  # fmt: skip
    return types, types.EntryState(entry, expected)


def _printed(log: Any) -> str:
    from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger

    out, logger = io.StringIO(), FlightRecorderLogger()
    handler = logging.StreamHandler(out)
    logger.logger.addHandler(handler)
    try:
        log(logger)
    finally:
        logger.logger.removeHandler(handler)
    return out.getvalue()


def test_torchfrtraces_missing_ranks_are_read(tmp_path: Path) -> None:
    _, entry = _entry(set(range(8)))
    message = "Not all ranks joining collective, sequence number: %s"
    text = _printed(lambda logger: entry.log(logger, message, lambda frames: "", missing_ranks={3, 6}))
    hang = _hang(tmp_path, text)
    assert list(hang["culprits"]) == ["3", "6"] and "not in all_reduce 17 of default_pg, which is scheduled" in hang["text"]


def test_torchfrtraces_culprits_are_read(tmp_path: Path) -> None:
    types, entry = _entry(set(range(8)))
    wrong = types.MatchInfo(types.MatchState.COLLECTIVE_TYPE_MISMATCH, "Expected collective type: 'a' does not match found 'b'")
    message = "Collective sequence number: %s has errors"
    text = _printed(lambda logger: entry.log(logger, message, lambda frames: "", errors={(4, wrong)}))
    hang = _hang(tmp_path, text)
    assert "which rank gave them wrong" in _hang(tmp_path, "Input/output mismatch in the collective sequence number: 17\n")["text"]
    assert list(hang["culprits"]) == ["4"] and "collective type mismatch: Expected" in hang["text"]
