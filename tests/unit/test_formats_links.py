"""What tests of links print: perftest, GPCNet, copies; counters of ports and switches."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading

WRITE = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Link type       : IB
 local address: LID 0x1 QPN 0x095f PSN 0x3c9e82
 remote address: LID 0x2 QPN 0x095e PSN 0xbd024b
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4          2000             10.65              10.64              2.788833
 8388608    2000             23240.68            23240.68                  0.002905
---------------------------------------------------------------------------------------
"""
GIGABITS = """RDMA_Read BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             390.10              380.00              0.7248
"""
LATENCY = """                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]
 2       1000          1.05           4.53         1.10               1.12           0.08            1.30
"""
LOADED = """NetworkLoad Tests v1.3
  Test with 10 MPI ranks (10 nodes)
+------------------------------------------------+
|             Isolated Network Tests             |
+---------------------------------+--------------+
|                            Name |          Avg |        Units |
|          RR Two-sided Lat (8 B) |          1.5 |         usec |
+------------------------------------------------+
|  Network Tests running with Congestion Tests - Key Results  |
|                            Name |                   Congestion Impact Factor |
|                                 |                  Avg |                 99% |
|          RR Two-sided Lat (8 B) |                 2.5X |                9.0X |
"""
PORTS = """# Port extended counters: Lid 1719 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................1000
SymbolErrorCounter:..............0
LinkDownedCounter:...............3
# Port extended counters: Lid 1719 port 2 (CapMask: 0x5300 CapMask2: 0x0000002)
PortXmitData:....................500
SymbolErrorCounter:..............0
PortXmitWait:....................22730501
"""
SWITCH = """=================================================
Quantum Mellanox Technologies
=================================================
part number        | MQM8790-HS2F
PSID               | MT_0000000063
GUID               | 0x08c0eb0300d9f672
-------------------------------------------------
PSU0 status        | OK
     power (W)     | 154
PSU1 status        | OK
     DC power      | ERROR
     power (W)     | 134
-------------------------------------------------
fan status         | OK
"""


def read(tmp_path: Path, text: str) -> Reading:
    path = tmp_path / "log.txt"
    path.write_text(text, encoding="utf-8")
    return read_files([path])


def test_rates_of_rdma_are_of_2_to_the_20_bytes(tmp_path: Path) -> None:
    """The rate of messages says so: 2.788833 million of 4 bytes are 10.64 of perftest's MB."""
    reading = read(tmp_path, WRITE)
    test = reading.facts["tests"]["RDMA_Write BW Test"]
    assert reading.format == "perftest" and test["sizes"] == 2 and reading.facts["nodes"] == 2
    assert test["largest_GBps"] == pytest.approx(23240.68 * 2**20 * 1e-9, abs=1e-3)
    assert 4 / test["smallest_us"] == pytest.approx(4 * 2.788833, rel=1e-2)
    assert reading.facts["device"] == "mlx5_0"


def test_gigabits_and_latencies_of_rdma(tmp_path: Path) -> None:
    assert read(tmp_path, GIGABITS).facts["tests"]["RDMA_Read BW Test"]["best_GBps"] == 47.5
    assert read(tmp_path, LATENCY).facts["tests"]["Send Latency Test"]["smallest_us"] == 1.1
    with pytest.raises(FileError, match="no row of a test"):
        read(tmp_path, "RDMA_Write BW Test\n#bytes #iterations BW peak[MB/sec]\n")


def test_tables_of_gpcnet(tmp_path: Path) -> None:
    reading = read(tmp_path, LOADED)
    assert reading.format == "gpcnet" and (reading.facts["ranks"], reading.facts["nodes"]) == (10, 10)
    tables = reading.facts["tables"]
    assert tables["Isolated Network Tests"]["RR Two-sided Lat (8 B)"] == {"Avg": 1.5, "Units": "usec"}
    key = tables["Network Tests running with Congestion Tests - Key Results"]
    assert key["RR Two-sided Lat (8 B)"] == {"Avg": 2.5, "99%": 9.0}
    with pytest.raises(FileError, match="did not begin"):
        read(tmp_path, "ERROR: this application must be run on at least 10 nodes\n")


@pytest.mark.parametrize(
    ("text", "series", "largest"),
    [
        (
            "bandwidthTest-H2D-Pinned, Bandwidth = 2.0 GB/s, Time = 0.0 s, Size = 6000 bytes, NumDevsUsed = 1\n"
            "bandwidthTest-H2D-Pinned, Bandwidth = 12.5 GB/s, Time = 0.0 s, Size = 9000000 bytes, NumDevsUsed = 1\n",
            "H2D-Pinned",
            12.5,
        ),
        (
            "   D2H_Bandwidth_pinned         1kB       GB/sec        0.0414  0.0411  0.0017  0.0189  0.0434\n"
            "   D2H_Bandwidth_pinned    524288kB       GB/sec        28.01  28.0  0.0017  0.0189  28.4\n",
            "D2H_Bandwidth_pinned",
            28.01,
        ),
        ("gpu0_to_gpu1_write_by_dma 279.3\ngpu1_to_gpu0_write_by_dma 279.3\n", "gpu_to_gpu_write_by_dma", 279.3),
        ("gpu0_to_gpu0_by_sm 682.0\ngpu1_to_gpu1_by_sm 683.0\n", "gpu_to_gpu_by_sm (same GPU)", 683.0),
        (
            "STREAM_COPY_double_gpu_0_buffer_4294967296_block_128    6711.67 81.93\n"
            "STREAM_COPY_double_gpu_0_buffer_4294967296_block_256    6549.50 79.95\n",
            "STREAM_COPY_double",
            6711.67,
        ),
        (
            "STREAM version $Revision: 5.10 $\nTriad:         363208.7     0.026599     0.026431     0.026855\n",
            "host triad",
            363.2087,
        ),
    ],
)
def test_rates_of_copies(tmp_path: Path, text: str, series: str, largest: float) -> None:
    reading = read(tmp_path, text)
    assert reading.format == "gpu-copies" and reading.content is Content.SETTINGS
    assert reading.facts["series"][series]["max"] == pytest.approx(largest)


def test_the_table_of_bandwidth_test(tmp_path: Path) -> None:
    text = (
        "[CUDA Bandwidth Test] - Starting...\n Device 0: Tesla V100-PCIE-32GB\n\n Host to Device Bandwidth, 1 Device(s)\n"
        " PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(MB/s)\n   33554432\t\t\t12500.0\n\nResult = PASS\n"
    )
    facts = read(tmp_path, text).facts
    assert facts["series"] == {"host to device": {"rows": 1, "median": 12.5, "min": 12.5, "max": 12.5}}
    assert facts["devices"] == ["Tesla V100-PCIE-32GB"]


def test_counters_of_ports(tmp_path: Path) -> None:
    facts = read(tmp_path, PORTS).facts
    assert facts["ports"] == 2 and facts["bytes"] == {"PortXmitData": 6000} and facts["counters"]["PortXmitWait"] == 22730501
    assert facts["ports_with_errors"] == 1 and facts["errors"] == {"lid 1719 port 1": {"LinkDownedCounter": 3}}


def test_a_switch(tmp_path: Path) -> None:
    reading = read(tmp_path, SWITCH)
    assert reading.format == "ibswinfo" and reading.facts["watts"] == 288 and reading.facts["switches"] == 1
    assert reading.facts["not_ok"] == ["log.txt: PSU1 DC power ERROR"]
    assert reading.facts["by_switch"]["0x08c0eb0300d9f672"]["PSU0 power (W)"] == 154


HEALTH = {
    "    ECC Errors\n        Volatile\n            SRAM Uncorrectable: 1\n        Aggregate\n            DRAM Uncorrectable: 0\n": [
        "1 ECC errors that were not corrected since the last reset (SRAM Uncorrectable)"
    ],
    "Attached GPUs : 2\nGPU 00000000:10:1C.0\n    Remapped Rows\n        Pending : Yes\n        Remapping Failure Occurred : No\n"
    "GPU 00000000:10:1D.0\n    Clocks Event Reasons\n        HW Slowdown : Active\n            HW Thermal Slowdown : Active\n": [
        "GPU 00000000:10:1C.0: a row of memory is remapped",
        "GPU 00000000:10:1D.0: its clock is lowered by hardware",
        "GPU 00000000:10:1D.0: its clock is lowered by heat",
    ],
    "CA 'mlx5_0'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
    "CA 'mlx5_7'\n\tPort 2:\n\t\tState: Down\n\t\tPhysical state: Polling\n": [
        "NIC mlx5_7 port 2: the port is Down", "NIC mlx5_7 port 2: the port's link is Polling"
    ],
    "hca_id:\tmlx5_1\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_DOWN (1)\n": ["NIC mlx5_1 port 1: the port is PORT_DOWN"],
    "Infiniband device 'mlx5_3' port 1 status:\n\tstate:\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n": [],
    "NIC statistics:\n     rx_discards_phy: 17\n     rx_prio3_pause: 0\n     rx_packets: 9\n": ["17 packets were dropped for want"],
    "link mlx5_0/1 rx_write_requests 5 out_of_sequence 55 \nlink mlx5_1/1 rx_write_requests 1 out_of_sequence 0 \n": [
        "NIC mlx5_0/1: 55 packets came out of order"
    ],
    "/sys/class/infiniband/mlx5_2/ports/1/hw_counters/local_ack_timeout_err:27\n": ["NIC mlx5_2/1: 27 requests had no answer"],
    "| Diagnostic                | Result            |\n| Denylist                  | Pass              |\n"
    "| PCIe                      | Fail - All        |\n| Warning                   | GPU 0's link 0    |\n"
    "|                           | is down           |\n| Memory                    | Pass - All        |\n": [
        "test PCIe failed (Fail - All: GPU 0's link 0 is down)"
    ],
    "GPU 0: NVIDIA H100 (UUID: a)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n": ["GPU 0: Link 1 of NVLink is not up"],
    "| NVIDIA-SMI 550.90 | Driver |\n|   1  NVIDIA A100 80GB PCIe  Off |   00000000:02:00.0 Off |   3 |\n"
    "| N/A   32C    P0  69W / 300W |  437MiB /  81920MiB |  100%  Default |\n": ["GPU 1 at 00000000:02:00.0: 3 ECC errors"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "faults"), HEALTH.items())
def test_faults_of_a_node_are_told_by_their_part(text: str, faults: list[str], tmp_path: Path) -> None:
    reading = read(tmp_path, text)
    assert reading.format == "node-health" and len(reading.facts["faults"]) == len(faults)
    assert all(told.startswith(fault) for told, fault in zip(reading.facts["faults"], faults, strict=True))
    assert bool(faults) != ("tells of a fault; what a tool does not print" in reading.facts["hang"]["text"])


FIO_JSON = (
    '{"fio version" : "fio-3.16", "jobs" : [{"jobname" : "a", "groupid" : 0, "write" : {"bw" : 5, "bw_bytes" : 2000000000, '
    '"iops" : 10.5}}, {"jobname" : "b", "groupid" : 0, "write" : {"bw_bytes" : 1000000000, "iops" : 1}}]}'
)
STORAGE = {
    "  write: IOPS=1706, BW=1706MiB/s (1789MB/s)(1725MiB/1011msec)\nRun status group 0 (all jobs):\n"
    "  WRITE: bw=1706MiB/s (1789MB/s), 1706MiB/s-1706MiB/s, io=1725MiB, run=1011-1011msec\n": {"write": 1706 * 2**20},
    "   READ: io=301308KB, aggrb=5021KB/s, minb=5021KB/s, mint=1msec\n": {"read": 5021 * 1024},
    "Max Write: 20170.50 MiB/sec (21150.27 MB/sec)\nMax Read:  30170.50 MiB/sec (31636.07 MB/sec)\n": {
        "write": 20170.5 * 2**20, "read": 30170.5 * 2**20
    },
    "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.510933 s, 2.1 GB/s\n": {"dd": 2.1e9},
    FIO_JSON: {"write": 3e9},
    "   Directory creation    20000.1   19000.0   19500.0   500.0\n   File stat :  12.0  10.0  11.0  1.0\n": {},
}  # fmt: skip


@pytest.mark.parametrize(("text", "rates"), STORAGE.items())
def test_rates_of_storage(text: str, rates: dict[str, float], tmp_path: Path) -> None:
    reading = read(tmp_path, text)
    assert reading.format == "storage" and {
        name: about["bytes_per_second"] for name, about in reading.facts["rates"].items()
    } == pytest.approx(rates)
    assert any("reliability.checkpoint.write=" in line for line in reading.built) == ("write" in rates)
    assert rates or reading.facts["operations"] == {"directory creation": 19500.0, "file stat": 11.0}


def test_host_memory_of_intels_checker(tmp_path: Path) -> None:
    facts = read(tmp_path, "ALL Reads        :\t240123.4\t\n3:1 Reads-Writes :\t220123.4\t\n").facts
    assert {name: about["max"] for name, about in facts["series"].items()} == {
        "host all reads": 240.1234,
        "host 3:1 reads-writes": 220.1234,
    }
