"""Logs of nccl-tests in their versions, OSU's tables, and NCCL's debug lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.machines.nccl.tests_log import parse_row
from windtunnel.formats.reading import Content, Reading

RANKS = "# Using devices\n" + "".join(
    f"#   Rank {rank:2d} Pid 42 on node{rank // 2} device {rank % 2} [0x00] A100-SXM4-40GB\n" for rank in range(4)
)


def imported(tmp_path: Path, text: str, name: str = "x.log") -> Reading:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_files([path])


@pytest.mark.parametrize(
    ("text", "comm", "columns"),
    [
        ("4096 1024 float sum 10.0 0.41 0.61 0e+00 20.0 0.20 0.31 0e+00", Comm.ALL_REDUCE, 12),
        ("4096 256 float sum 10.0 0.41 0.31 N/A 20.0 0.20 0.15 N/A", Comm.REDUCE_SCATTER, 12),
        ("4096 1024 float sum 0 10.0 0.41 0.41 N/A 20.0 0.20 0.20 N/A", Comm.REDUCE, 13),
        ("4096 1024 float 0 10.0 0.41 0.41 0e+00 20.0 0.20 0.20 0e+00", Comm.BROADCAST, 12),
        ("4096 1024 float sum -1 10.0 0.41 0.61 0 20.0 0.20 0.31 0", Comm.ALL_REDUCE, 13),
    ],
)
def test_the_columns_tell_the_collective(tmp_path: Path, text: str, comm: Comm, columns: int) -> None:
    header = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    reading = imported(tmp_path, RANKS + header + f"[1,0]<stdout>:{text}\n")
    (table,) = reading.value.tables
    assert reading.content is Content.COLLECTIVES and table.comm is comm and (table.ranks, table.nodes) == (4, 2)
    assert [(call.bytes, call.seconds, call.in_place) for call in table.calls] == [(4096.0, 10e-6, False), (4096.0, 20e-6, True)]
    assert reading.facts["columns_per_row"] == {str(columns): 1} and reading.facts["hosts"] == 2


def test_ranks_follow_from_the_bandwidths_where_no_device_is_listed(tmp_path: Path) -> None:
    row = "17179869184 4294967296 float sum -1 62239 276.03 483.05 0 62200 276.20 483.35 0\n"
    reading = imported(tmp_path, "# Avg bus bandwidth    : 1\n" + row)
    assert reading.value.tables[0].ranks == 8 and any("8 ranks" in text for text in reading.assumed)  # 2 x 7 / 8 = 1.75


def test_several_tests_of_a_log_are_several_tables(tmp_path: Path) -> None:
    row = "1024 16 float none -1 10.0 0.10 0.05 0 10.0 0.10 0.05 0\n"
    text = "# Collective test starting: all_gather_perf\n" + RANKS + row + row + "# Avg bus bandwidth    : 1.5\n"
    text += "# Collective test starting: alltoall_perf\n" + RANKS + row + "# Avg bus bandwidth    : 2.5\n"
    reading = imported(tmp_path, text)
    assert [table.comm for table in reading.value.tables] == [Comm.ALL_GATHER, Comm.ALL_TO_ALL]
    assert [len(table.calls) for table in reading.value.tables] == [4, 2] and reading.facts["avg_busbw_footer"] == [1.5, 2.5]


def test_a_table_that_names_no_collective_is_left_out(tmp_path: Path) -> None:
    reading = imported(tmp_path, "# Avg bus bandwidth    : 1\n" + "1024 16 float 10.0 0.10 0.05 N/A 10.0 0.10 0.05 N/A\n" * 3)
    assert not reading.value.tables and "collective" in reading.ignored[0]


def test_rows_with_wrong_results_and_blank_halves() -> None:
    row = parse_row("0: 8 2 float sum -1 5.0 0.1 0.1 3 ")
    assert row is not None and row.wrong == (3, -1) and row.seconds[0] == 5e-6 and row.seconds[1] != row.seconds[1]
    assert parse_row("16777216 4194304 of something 8 2") is None and parse_row("") is None


def test_columns_that_options_add_are_passed_over() -> None:
    each = parse_row("8 2 float sum -1 5.0 0.1 0.1 0 4.0 6.0 5.9 3.1 7.0 0.2 0.2 0 6.0 8.0 7.9 2.2")
    assert each is not None and each.seconds == (5e-6, 7e-6) and each.root == -1
    stamped = parse_row("8 2 float sum -1 5.0 0.1 0.1 0 7.0 0.2 0.2 0 2025-01-01 10:00:00")
    assert stamped is not None and stamped.seconds == (5e-6, 7e-6) and stamped.root == -1


def test_the_json_of_nccl_tests(tmp_path: Path) -> None:
    devices = [
        {"rank": rank, "hostname": f"n{rank // 2}", "device": rank % 2, "device_info": "NVIDIA H100 80GB HBM3"} for rank in range(4)
    ]
    result = {
        "size": 1024,
        "count": 256,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": {"time": 7.0, "nwrong": "0"},
        "in_place": None,
    }
    top = {
        "args": ["./build/all_reduce_perf"], "nccl_version": 22703, "config": {"minimum_bytes": 8, "devices": devices},
        "results": [result, {"size": "?"}], "average_bus_bandwidth": {"bandwidth": 3.5, "okay": "unchecked"},
    }  # fmt: skip
    reading = imported(tmp_path, json.dumps(top), "x.json")
    (table,) = reading.value.tables
    assert table.comm is Comm.ALL_REDUCE and (table.ranks, table.nodes) == (4, 2) and table.calls[0].seconds == 7e-6
    assert reading.facts["avg_busbw_footer"] == [3.5] and "1 results" in reading.broken[0]


def test_osu_latencies_and_rates(tmp_path: Path) -> None:
    latency = "# OSU MPI-CUDA Allreduce Latency Test v5.7\n# Size Avg Latency(us) Min Max\n4 34.31 33.27 35.07\n8 34.10 33 34\n"
    reading = imported(tmp_path, latency)
    (table,) = reading.value.tables
    assert (
        table.comm is Comm.ALL_REDUCE
        and table.library == "mpi"
        and not table.on_host
        and table.calls[0].seconds == pytest.approx(34.31e-6)
    )
    rate = "# OSU MPI Multiple Bandwidth / Message Rate Test v5.7\n# [ pairs: 8 ] [ window size: 64 ]\n1000000 8000.0 8000.0\n"
    (table,) = imported(tmp_path, rate, "y.log").value.tables
    assert table.comm is Comm.SEND_RECV and table.on_host and table.calls[0].seconds == pytest.approx(1e-3)  # 8 pairs share 8 GB/s


def test_debug_lines_are_counted(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "node1:10:20 [0] NCCL INFO NCCL version 2.19.3+cuda12.3",
            "node1:10:20 [0] NCCL INFO Channel 00/04 :    0   1   2   3",
            "node1:10:20 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1",
            "node1:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "node1:10:20 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IBext/0/GDRDMA",
            "node1:10:20 [0] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IBext/1(2)/GDRDMA",
            "node1:10:20 [0] NCCL INFO 4 coll channels, 16 nvls channels, 4 p2p channels, 4 p2p channels per peer",
            "node1:10:20 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId b000 - Init COMPLETE",
        ]
    )
    facts = imported(tmp_path, text).facts
    assert facts["version"] == ["2.19.3+cuda12.3"] and facts["channels_declared"] == ["04"] and facts["nranks"] == ["4"]
    assert facts["via"] == {"P2P/CUMEM": 1, "NET/IBext/GDRDMA": 1, "NET/IBext/PXN/GDRDMA": 1} and facts["gpu_direct"] is True
    assert facts["nvls_channels"] == 16 and facts["trees"] == 1 and facts["init_complete"] == 1 and facts["nccl_info"] == 8


def test_an_empty_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError):
        imported(tmp_path, "# nThread 1 nGpus 8 minBytes 1 maxBytes 8 step: 2(factor)\n")


def test_real_logs_have_the_counted_rows(shared: Path) -> None:
    folder = shared / "samples/4_nccl_fabric/nccl_tests"
    if not folder.is_dir():
        pytest.skip("no samples beside the project")
    counted = json.loads((folder / "FACTS.json").read_text(encoding="utf-8"))
    for name, facts in counted.items():
        if facts["rows"]:
            own = read_files([folder / name]).facts
            for key in (
                "ranks",
                "hosts",
                "devices",
                "rows",
                "columns_per_row",
                "sizes",
                "first_row",
                "last_row",
                "programs",
                "options",
            ):
                assert own[key] == facts[key], (name, key)


def test_a_log_of_warnings_alone(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "n1:100:200 [0] transport/net_ib.cc:57 NCCL WARN NET/IB : Got async event : port error 10\n"
        "n2:100:201 [3] transport/net_ib.cc:57 NCCL WARN NET/IB : Got async event : port error 12\n"
    )
    facts = read_files([path]).facts
    assert facts["warnings"] == {"NET/IB : Got async event : port error N": 2} and facts["nccl_info"] == 0


def test_a_test_that_is_named_at_its_end(tmp_path: Path) -> None:
    row = "1024 16 float none -1 10.0 0.10 0.05 N/A 10.0 0.10 0.05 N/A\n"
    text = RANKS + row + "# Avg bus bandwidth    : 1.5\n# Collective test concluded: all_gather_perf\n"
    assert [table.comm for table in imported(tmp_path, text).value.tables] == [Comm.ALL_GATHER]


def test_two_ranks_that_send_are_no_all_reduce(tmp_path: Path) -> None:
    sends = "# Avg bus bandwidth    : 22.7\n134217728 33554432 float sum -1 5633.6 23.82 23.82 0 5630.2 23.84 23.84 N/A\n"
    assert imported(tmp_path, RANKS + sends).value.tables[0].comm is Comm.SEND_RECV
    assert imported(tmp_path, RANKS + sends.replace("N/A", "0")).value.tables[0].comm is Comm.ALL_REDUCE


def test_the_json_has_the_calls(tmp_path: Path) -> None:
    header = "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
    row = "4096 1024 float sum 10.0 0.41 0.61 0e+00 20.0 0.20 0.31 0e+00\n"
    table = json.loads(json.dumps(imported(tmp_path, RANKS + header + row).as_dict()))
    first, second = ({"op": "all_reduce", "ranks": 4, "nodes": 2, "size": 4096, "seconds": seconds, "in_place": inside}
                     for seconds, inside in ((1e-5, False), (2e-5, True)))  # fmt: skip
    assert table["calls"] == [first, second]


SIZE_TABLES = {
    "$ torchrun --nproc_per_node=8 all_reduce_bench.py\n\n| payload |  busbw   |  algbw   |\n| ------: | -------: | -------: |\n"
    "|  32KiB | 3.5GBps |  2GBps |\n|   1MiB | 7GBps |  4.00GBps |\n": (
        Comm.ALL_REDUCE, 8, [(32768, 32768 / 2e9), (2**20, 2**20 / 4e9)]),
    "./all_gather_perf -b 1 -g 4\n   size    time   algbw   busbw\n    (B)    (us)  (GB/s)  (GB/s)\n"
    "  1_024   43.8    0.1    0.2\n   2048   50  1  2\n": (
        Comm.ALL_GATHER, 4, [(1024, 43.8e-6), (2048, 50e-6)]),
    "# Benchmarking Allreduce\n# #processes = 4\n       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
    "            0  1000  0.04  0.05  0.04\n            4  1000  3.1  3.2  3.20\n      64  10  5.0  6.0  5.5\n": (
        Comm.ALL_REDUCE, 4, [(4, 3.2e-6), (64, 5.5e-6)]),
    "./bin/reduce_scatter_test -b 8K\ndata_size(Bytes):    | aveg_time(us):   | alg_bandwidth(GB/s):  | check_result:\n"
    "8192   | 43.5   | 0.2   | success\n16384   | 50   | 0.3   | success\n": (
        Comm.REDUCE_SCATTER, 0, [(8192, 43.5e-6), (16384, 50e-6)]),
    "Comm. Op    Message Size    Count     Total Latency(ms)   Total straggler(ms) Avg Latency(ms)     tput_avg (Gbps) "
    "    busbw_avg (Gbps)\nall_reduce\n              2.0 KB      3      2.4     0.06      0.8     0.17     0.17\n"
    "              4.0 MB    3    2.4     0.06      0.9     0.17     0.17\n": (Comm.ALL_REDUCE, 0, [(2048, 8e-4), (2**22, 9e-4)]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), SIZE_TABLES.items())
def test_tables_by_size_of_other_benchmarks(text: str, wanted: tuple[Comm, int, list[tuple[float, float]]], tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(text, encoding="utf-8")
    reading = read_files([path])
    (table,) = reading.value.tables
    assert reading.format == "collective-tables" and (table.comm, table.ranks) == wanted[:2]
    assert [call.bytes for call in table.calls] == [size for size, _ in wanted[2]]
    assert [call.seconds for call in table.calls] == pytest.approx([seconds for _, seconds in wanted[2]])


def test_a_table_whose_collective_no_line_names_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text("| payload | busbw | algbw |\n| 1KiB | 1GBps | 1GBps |\n| 2KiB | 1GBps | 1GBps |\n", encoding="utf-8")
    with pytest.raises(FileError, match="Write the collective's name"):
        read_files([path])
