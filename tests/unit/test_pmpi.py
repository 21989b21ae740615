"""MPI traces of liballprof."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Context
from windtunnel.formats.traces.pmpi import read

TEXT = """# collprof 0.9 output file

MPI_Init:-:140:604:1000.0
MPI_Comm_rank:1002.0:0,0,4:6741352:1003.0
MPI_Send:1010.0:10981360:4500:11,8,8:2:3000:0,1,4:1030.5
MPI_Allreduce:1040.0:1:2:4:1,4:0:0,0,4:1050.0
MPI_Recv:1060.0:broken
MPI_Finalize:1070.0:-
"""


def test_calls(tmp_path: Path) -> None:
    path = tmp_path / "pmpi-trace-rank-1.txt"
    path.write_text(TEXT)
    reading = read_files([path])
    assert reading.content is Content.RUN and reading.facts["calls"] == 5
    assert reading.facts["by_rank"] == {
        "1": {"MPI_Init": 1, "MPI_Comm_rank": 1, "MPI_Send": 1, "MPI_Allreduce": 1, "MPI_Finalize": 1}
    }
    (trace,) = reading.value.ranks
    events = trace.events
    assert trace.rank == 1 and trace.zero == pytest.approx(1e-3)
    assert events.begin[2] == pytest.approx(10e-6) and events.seconds[2] == pytest.approx(20.5e-6)
    assert (events.bytes[2], events.peer[2], events.comm[2]) == (36000, 2, Comm.SEND_RECV)
    assert events.bytes[3] == 16  # four elements of four bytes
    assert "1 lines" in reading.broken[0]


def test_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("MPI_Send:nothing\nMPI_Recv:nothing\n")
    with pytest.raises(FileError, match="no call"):
        read([path], Context())
