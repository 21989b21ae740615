"""NCCL's own words on a machine's links: graphs, paths, NICs, transports, the tuner's table, and what an expert says of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.cli import main
from windtunnel.formats.machines.nccl.debug_words import DebugWords

HEAD = "node-a:100:200 [{device}] NCCL INFO "
NICS = " ".join(f"[{number}]mlx5_{number}:1/IB" for number in range(8))
SLOW = (
    f"NET/IB : Using {NICS} [RO]; OOB eth0:10.0.0.1<0>",
    "Using network IB",
    "GPU/8000 :GPU/8000 (0/5000.000000/LOC) GPU/9000 (2/12.000000/PHB) CPU/0 (1/24.000000/PHB) NET/0 (3/12.000000/PHB)",
    "Pattern 4, crossNic 0, nChannels 2, bw 3.000000/3.000000, type PHB/SYS, sameChannels 1",
    "Pattern 1, crossNic 0, nChannels 2, bw 6.000000/3.000000, type PHB/PIX, sameChannels 1",
    "Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0",
    "Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
    "NCCL_P2P_DISABLE set by environment to 1",
)


def words_of(*lines: str) -> DebugWords:
    words = DebugWords()
    for line in lines:
        words.line(HEAD.format(device=0) + line)
    return words


def log_of(folder: Path, *lines: str) -> Path:
    log = folder / "nccl.log"
    log.write_text("".join(HEAD.format(device=0) + line + "\n" for line in lines))
    return log


def test_a_slow_machine_is_described_as_an_expert_would() -> None:
    said = words_of(*SLOW).findings()
    assert said[0] == "7 of 8 NICs are not used by the 1 GPU of this log: " + ", ".join(f"mlx5_{n}" for n in range(1, 8))
    text = "; ".join(said)
    assert "3 GB/s a channel over PHB (PCIe and the CPU's host bridge), 2 of them in a ring: 6 GB/s" in text
    assert "no GPUDirect RDMA" in text and "SHM: GPUs of a node copy through host memory" in text
    assert "NICs are reached over SYS (the link between CPU sockets)" in text and "NCCL_P2P_DISABLE=1" in text


@pytest.mark.parametrize("seed", range(10))
def test_any_machine_is_described_by_its_own_numbers(seed: int) -> None:
    """NICs that are used and not, channels, bandwidths and paths as they are drawn, whatever their names."""
    draw = random.Random(seed)
    count, brand = draw.randrange(2, 11), draw.choice(["mlx5_", "mlx5_bond_", "rocep", "ib"])
    names = [f"{brand}{number}" for number in range(count)]
    used = sorted(draw.sample(range(count), draw.randrange(1, count)))
    channels, rate = draw.randrange(1, 17), draw.choice([2, 3, 6, 12, 15, 24, 30])
    inside, outside = draw.choice(["NVL", "PIX", "PXB", "PHB", "SYS"]), draw.choice(["PIX", "PXB", "PHB", "SYS"])
    found = words_of(
        "NET/IB : Using " + " ".join(f"[{n}]{name}:1/{draw.choice(['IB', 'RoCE'])}" for n, name in enumerate(names)) + " [RO]",
        f"Pattern 4, crossNic 0, nChannels {channels}, bw {rate:.6f}/{rate:.6f}, type {inside}/{outside}, sameChannels 1",
        *(f"Channel 0{n}/0 : 7[7] -> 8[0] [receive] via NET/IB/{n}/GDRDMA" for n in used),
    )
    text = "; ".join(found.findings())
    idle = [name for n, name in enumerate(names) if n not in used]
    assert f"{len(idle)} of {count} NICs are not used" in text and all(name in text for name in idle)
    assert f"{rate} GB/s a channel over {inside}" in text
    assert channels == 1 or f"{channels} of them in a ring: {channels * rate} GB/s" in text
    assert found.facts()["nics_used"] == [names[n] for n in used]


def test_graphs_and_paths_are_facts() -> None:
    facts = words_of(*SLOW).facts()
    assert facts["graphs"] == [
        "rings: 2 channels of 3 GB/s over PHB, NICs over SYS",
        "balanced trees: 2 channels of 6 GB/s over PHB, 3 GB/s to the network, NICs over PIX",
    ]
    assert facts["paths"] == ["GPU over PHB: 1", "NET over PHB: 1"] and facts["nics_used"] == ["mlx5_0"]


def test_sockets_are_named() -> None:
    said = words_of(
        "NET/IB : No device found.", "Using network Socket", "Channel 00 : 0[0] -> 1[0] [send] via NET/Socket/0"
    ).findings()
    assert said == ["NET/Socket: traffic between nodes goes over TCP; no InfiniBand or RoCE device was found"]


def test_a_good_machine_has_nothing_grave() -> None:
    said = words_of(
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA",
    ).findings()
    assert said == ["30 GB/s a channel over NVL (NVLink), 12 of them in a ring: 360 GB/s"]


def test_the_table_of_the_tuner() -> None:
    """Rows of a T4 node: ring alone, 9 GB/s for large buffers with Simple, 6.3 us with LL."""
    words = words_of(
        "Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |    Ring/    LL |    Ring/ LL128 |    Ring/Simple |",
        " Max NThreads |            512 |            640 |            512 |            512 |            640 |            256 |",
        "    Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     6.3/   0.0 |    14.0/   0.0 |    18.0/   9.0 |",
    )
    assert words.facts()["tuning"] == {"Broadcast": "Ring Simple at 9 GB/s, Ring LL from 6.3 us"}


def test_findings_stand_beside_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = wt.read(log_of(tmp_path, *SLOW), cluster="h100-ib").facts
    # 8 NICs of 50 GB/s carry less than NVLink's 450 GB/s a GPU
    assert facts["beside_the_cluster"] == [
        "rings of 6 GB/s, where the cluster's nvswitch and NICs allow 400: 2 %",
        "1 NICs carry traffic, where a node of the cluster has 8",
    ]
    assert main(["import", str(log_of(tmp_path, *SLOW))]) == 0
    assert "findings" in capsys.readouterr().out


ROWS = """ 0: #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
 0: #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
 0:        65536           512     float    none      -1    107.5    0.61    0.59      0    105.6    0.62    0.60      0
 0:       131072          1024     float    none      -1    210.0    0.62    0.60      0    202.6    0.65    0.63      0
 0:       262144          2048     float    none      -1    211.1    1.24    1.20      0    200.9    1.30    1.26      0
"""


def test_a_table_without_operation_and_ranks_is_told_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "out.log"
    log.write_text(ROWS)
    assert not wt.read(log).value.tables
    table = wt.read(log, op="all_gather", ranks=32).value.tables[0]
    assert (table.comm.name, table.ranks, len(table.calls)) == ("ALL_GATHER", 32, 6)
    words = ["collective", "-c", "mi250x-slingshot", "-n", "32", "--op", "all_gather", "-b", "64K:256K:2", "--measured", str(log)]
    assert main(words) == 0
    assert "Measured, 65536 B: 105.60 us" in capsys.readouterr().out
    with pytest.raises(wt.UnknownName, match="all_gathers"):
        wt.read(log, op="all_gathers")
