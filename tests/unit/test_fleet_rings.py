"""All rings of a folder as one table: open rows without seconds, groups by their ranks, hosts by rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.rings import ring_files, ring_path
from windtunnel.records.sections import Section


def test_rings_of_a_folder_are_one_table(tmp_path: Path) -> None:
    for rank in (10, 2):
        writer = RingWriter(ring_path(tmp_path, rank), "job", rank, 16, host=f"node{rank // 8}")
        extra = writer.text("name", f"only on {rank}")
        group = writer.text("group", {"name": "dp", "ranks": [2, 10]})
        row = writer.write(
            Section.CALL, 4, 10**18 + rank * 10**9, name=extra, group=group, comm=Comm.SEND_RECV, size=64, peer=7, sends=1
        )
        writer.rewrite(row, 2_000_000, 3_000_000, RowState.DONE)
        writer.write(Section.FORWARD, 5, 10**18 + 20 * 10**9, micro_batch=3)
        writer.close()
    assert [path.name for path in ring_files(tmp_path)] == ["rank-000002.ring", "rank-000010.ring"]
    table = recorded_of_rings(tmp_path).sections
    assert table.rank.tolist() == [2, 2, 10, 10] and table.hosts == {2: "node0", 10: "node1"}
    assert table.groups == ((2, 10),) and table.group_names == ("dp",) and table.group.tolist() == [0, -1, 0, -1]
    assert [table.names[name] for name in table.name if name >= 0] == ["only on 2", "only on 10"]
    np.testing.assert_allclose(table.begin, [0, 18, 8, 18])
    np.testing.assert_allclose(table.seconds, [0.002, np.nan, 0.002, np.nan])
    np.testing.assert_allclose(table.bytes, [64, np.nan, 64, np.nan])
    assert table.sends.tolist() == [True, False, True, False] and table.micro_batch.tolist() == [-1, 3, -1, 3]


def test_a_folder_without_rings_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="fleet run"):
        recorded_of_rings(tmp_path)
