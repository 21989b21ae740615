"""Damaged outputs of machines: what is broken in them is said, and not averaged away."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Reading


def _matrix(gpus: int, links: int, without: tuple[int, ...] = (), nics: int = 2) -> list[list[str]]:
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    cells = []
    for i, name in enumerate(names):
        row = [name]
        for j in range(len(names)):
            both = i < gpus and j < gpus
            row.append(" X " if i == j else "SYS" if both and {i, j} & set(without) else f"NV{links}" if both else "NODE")
        cells.append(row)
    return [["", *names, "CPU Affinity", "NUMA Affinity"], *cells]


def _read(folder: Path, matrix: list[list[str]], separator: str = "\t") -> Reading:
    path = folder / "topo.txt"
    path.write_text("\n".join(separator.join(row) for row in matrix) + "\n", encoding="utf-8")
    return read_files([path])


def test_a_whole_matrix_is_not_complained_of(tmp_path: Path) -> None:
    reading = _read(tmp_path, _matrix(8, 18))
    assert reading.broken == () and reading.facts["links_per_gpu"] == 18


@pytest.mark.parametrize("without", [(2,), (0,), (3, 6)])
@pytest.mark.parametrize(("gpus", "links"), [(8, 18), (8, 12), (4, 4)])
def test_a_gpu_without_nvlink_is_said(gpus: int, links: int, without: tuple[int, ...], tmp_path: Path) -> None:
    if max(without) >= gpus or 2 * len(without) >= gpus:
        without = (1,)
    (said,) = _read(tmp_path, _matrix(gpus, links, without)).broken
    assert all(f"GPU{gpu}" in said for gpu in without) and "no NVLink" in said


def test_a_node_of_pcie_alone_has_no_broken_gpu(tmp_path: Path) -> None:
    assert _read(tmp_path, _matrix(8, 18, tuple(range(8)))).broken == ()


def test_a_lost_cell_shifts_a_row(tmp_path: Path) -> None:
    matrix = _matrix(8, 18, nics=4)
    del matrix[3][2]
    assert any("shifted" in said or "cut off" in said for said in _read(tmp_path, matrix).broken)


def test_paths_that_differ_there_and_back_are_said(tmp_path: Path) -> None:
    matrix = _matrix(8, 18, nics=4)
    matrix[1][10] = "PXB"
    assert any("two paths" in said for said in _read(tmp_path, matrix).broken)


@examples(60)
@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["drop", "PIX", "NV1", ""]))
def test_any_changed_cell_is_noticed(row: int, column: int, how: str) -> None:
    import tempfile

    matrix = _matrix(8, 18, nics=4)
    if how == "drop":
        del matrix[row][column]
    elif row == column or matrix[row][column].strip() == how:
        return
    else:
        matrix[row][column] = how
    with tempfile.TemporaryDirectory() as folder:
        assert _read(Path(folder), matrix).broken


ROWS = [
    (2**21, 416.7, 5.03, 9.65), (2**22, 625.8, 6.70, 12.85), (2**23, 986.0, 8.51, 16.31), (2**24, 1336.5, 12.55, 24.06),
    (2**25, 2285.2, 14.68, 28.14), (2**26, 24425.0, 2.75, 5.27),
]  # fmt: skip


@pytest.mark.parametrize("tag", ["[0]", "[node1:3]", "<node7:0>"])
def test_tags_inside_a_row_are_taken_out(tag: str, tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    lines = [
        f"{tag}#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    ]
    for size, time, rate, bus in ROWS:
        part = f"{time} {rate} {bus}      0"
        lines.append(f"{tag} {size} {size // 4} float sum -1{tag} {part}{tag} {part}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    reading = read_files([path])
    assert reading.facts["rows"] == 6 and sum(len(table.calls) for table in reading.value.tables) == 12
    assert reading.facts["drops"] == ["all_reduce: 2.75 GB/s at 64 MiB, after 14.7 GB/s at 32 MiB"]


def test_a_table_that_rises_has_no_drop(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    rows = [f"{size} {size // 4} float sum -1 {time} {rate} {bus} 0 {time} {rate} {bus} 0" for size, time, rate, bus in ROWS[:-1]]
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    assert "drops" not in read_files([path]).facts
