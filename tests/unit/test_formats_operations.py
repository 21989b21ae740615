"""What operators have: htsim's topologies, NCCL tuner tables, power readings, DCGM metrics, stacks; and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.comm import Comm
from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Context, Reading

TOPOLOGY = """nodes 32
Tiers 3
Podsize 16

Tier 0
Downlink_speed_Gbps 400
Radix_Down 8
Radix_Up 4
Queue_Down 100
Downlink_Latency_ns 700
Switch_Latency_ns 300
Tier 1
Downlink_speed_Gbps 400
Radix_Down 2
Radix_Up 2
Bundle 2
Downlink_Latency_ns 1000
Tier 2
Downlink_speed_Gbps 200
Radix_Down 4
Bundle 1
Downlink_Latency_ns 1000
"""
MEASURED = """collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,cost_metric,bandwidth_gbps,latency_us
allreduce,1048576,ring,simple,4,1,8,-1,-1,0.5,20.0,52.4
allreduce,1048576,nvls,simple,16,1,8,-1,-1,0.9,26.2,40.0
allreduce,1024,tree,ll,2,2,16,-1,-1,0.2,0.1,12.0
"""
CONFIGURED = """# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff
allreduce,0,65536,tree,ll,2,1,-1,-1,-1
broadcast,65537,4294967295,ring,simple,-1,-1,-1,-1,-1
"""
WATTS = """timestamp, index, name, power.draw [W], utilization.gpu [%]
2024/05/06 07:08:00.000, 0, NVIDIA H100 80GB HBM3, 100.00 W, 50 %
2024/05/06 07:08:00.000, 1, NVIDIA H100 80GB HBM3, [N/A], 50 %
2024/05/06 07:08:10.000, 0, NVIDIA H100 80GB HBM3, 300.00 W, 70 %
2024/05/06 07:08:10.000, 1, NVIDIA H100 80GB HBM3, 600.00 W, 90 %
2024/05/06 07:08:20.000, 1, NVIDIA H100
"""
METRICS = """# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="n0"} 310.5
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",Hostname="n0"} 410.5
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-a",Hostname="n0"} 9223372036854775794
DCGM_FI_DEV_MEMORY_TEMP{gpu="0"
"""


def stack(pid: int, call: str) -> str:
    """What py-spy prints of a process with a second, idle thread."""
    return (
        f"Process {pid}: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\n"
        f'Thread {pid} (active): "MainThread"\n    {call}\n    train (train.py:80)\n    <module> (train.py:99)\n'
        f'Thread {pid + 1} (idle): "Thread-1"\n    wait (threading.py:324)\n'
    )


def imported(tmp_path: Path, text: str, cluster: str | None = None) -> Reading:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    return read_files([path], Context(cluster=cluster))


def test_a_fat_tree_of_htsim_is_a_fabric(tmp_path: Path) -> None:
    reading = imported(tmp_path, TOPOLOGY)
    assert (reading.format, reading.content) == ("htsim", Content.CLUSTER)
    cluster = reading.value
    assert (cluster.gpus, cluster.node.gpus, cluster.fabric.leaf_nodes, cluster.fabric.pod_nodes) == (32, 1, 8, 16)
    assert cluster.node.nic.bandwidth == pytest.approx(50e9)
    assert cluster.fabric.oversubscription == pytest.approx(2.0)  # 8 x 400 down, 4 x 400 up
    assert cluster.fabric.pod_oversubscription == pytest.approx(2.0)  # 2 x 400 down, 2 x 200 up
    assert cluster.fabric.hop_latency == pytest.approx(1e-6)
    assert any("queue_down" in line for line in reading.ignored)


def test_the_ends_of_a_fat_tree_are_the_nics_of_the_users_nodes(tmp_path: Path) -> None:
    cluster = imported(tmp_path, TOPOLOGY, "h100-ib").value
    assert (cluster.gpus, cluster.node.gpus, cluster.node.nic.count) == (32, 8, 8)
    assert (cluster.fabric.leaf_nodes, cluster.fabric.pod_nodes) == (1, 2)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("nodes 32", "nodes 0", "nodes"),
        ("Podsize 16", "Podsize 12", "podsize"),
        ("Tiers 3", "Tiers 2", "tiers"),
        ("Tier 1", "Tier 2", "tier"),
        ("Radix_Up 4", "Radix_Up", "line 8"),
        ("Downlink_speed_Gbps 200", "Downlink_speed_Gbps 0", "tier 2 downlink_speed_gbps"),
        ("Radix_Up 4", "", "tier 0 radix_up"),
    ],
)
def test_a_contradictory_tree_is_refused_by_field(tmp_path: Path, old: str, new: str, field: str) -> None:
    with pytest.raises(WindtunnelError, match=field):
        imported(tmp_path, TOPOLOGY.replace(old, new, 1))


def test_the_fastest_choice_of_a_tuner_is_the_measured_call(tmp_path: Path) -> None:
    reading = imported(tmp_path, MEASURED)
    assert reading.content is Content.COLLECTIVES
    one, two = reading.value.tables
    assert (one.comm, one.ranks, one.nodes) == (Comm.ALL_REDUCE, 8, 1)
    assert one.calls[0].seconds == pytest.approx(40e-6)
    assert (two.ranks, two.nodes) == (16, 2)
    assert reading.facts["best"][0]["algorithm"] == "nvls"


def test_a_tuners_times_that_contradict_its_rates_are_in_no_fit(tmp_path: Path) -> None:
    reading = imported(tmp_path, MEASURED.replace("26.2", "551.2"))
    assert reading.content is Content.SETTINGS
    assert reading.facts["contradictions"] == 1
    assert reading.ignored


def test_a_tuners_configuration_is_rules(tmp_path: Path) -> None:
    reading = imported(tmp_path, CONFIGURED + "allreduce,1,2,spiral,ll,1,1,1\n")
    assert (reading.content, reading.facts["rows"]) == (Content.SETTINGS, 2)
    assert reading.broken


def test_watts_of_nvidia_smi_are_means_and_joules(tmp_path: Path) -> None:
    reading = imported(tmp_path, WATTS)
    assert (reading.format, reading.facts["readings"], reading.facts["gpus"]) == ("nvidia-smi-query", 3, 2)
    first = reading.facts["by_gpu"]["0"]
    assert (first["mean_w"], first["joules"], first["seconds"]) == (200.0, 2000.0, 10.0)
    assert "joules" not in reading.facts["by_gpu"]["1"]  # a single reading spans no time
    assert reading.ignored and reading.broken


def test_watts_without_times_or_units_give_means(tmp_path: Path) -> None:
    reading = imported(tmp_path, "index, power.draw [W]\n0, 100.0\n0, 200.0\n")
    assert reading.facts["mean_w"] == 150.0
    assert "joules" not in reading.facts and reading.assumed


@pytest.mark.parametrize(
    ("device", "limit", "said"), [("NVIDIA B200", 750, True), ("NVIDIA B200", 1000, False), ("Odd", 750, False)]
)
def test_a_power_limit_below_the_boards_is_told(tmp_path: Path, device: str, limit: int, said: bool) -> None:
    reading = imported(tmp_path, f"index, name, power.draw [W], power.limit [W]\n0, {device}, 700.00 W, {limit}.00 W\n")
    assert any("power_cap_w=750" in line for line in reading.built) is said


def test_metrics_of_dcgm_leave_blanks_out(tmp_path: Path) -> None:
    reading = imported(tmp_path, METRICS)
    assert (reading.facts["gpus"], reading.facts["blank"]) == (2, 1)
    assert reading.facts["fields"]["DCGM_FI_DEV_POWER_USAGE"] == {"min": 310.5, "median": 360.5, "max": 410.5}
    assert reading.facts["fields"]["DCGM_FI_DEV_MEMORY_TEMP"] is None
    assert reading.broken


def test_the_stack_that_differs_is_told(tmp_path: Path) -> None:
    text = "".join(stack(pid, "all_reduce (dist.py:10)") for pid in (100, 200, 300)) + stack(400, "read (data.py:7)")
    reading = imported(tmp_path, text)
    assert (reading.facts["processes"], reading.facts["threads"], reading.facts["main_threads"]) == (4, 8, 4)
    assert [one["threads"] for one in reading.facts["stacks"]] == [3, 1]
    assert any("400" in line and "apart" in line for line in reading.built)


def test_a_shortened_dump_lends_the_next_stack(tmp_path: Path) -> None:
    reading = imported(tmp_path, 'Thread 1 (active): "MainThread"\nThread 2 (active): "MainThread"\n    send (a.py:1)\n')
    assert reading.facts["stacks"] == [{"threads": 2, "ids": ["1", "2"], "call": "send (a.py:1)", "frames": ["send (a.py:1)"]}]
    assert reading.assumed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "an empty file"),
        ("PAR1\x15\x04", "a Parquet table"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:20\nsize 9\n", "Git LFS"),
        ('{"workload_graph": [], "workload_name": "x", "ngpus": 2}', "workload graph"),
        ("job,gpus,seconds\na,8,100\nb,16,200\n", "the columns job, gpus, seconds"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(WindtunnelError, match=what):
        imported(tmp_path, text)


@pytest.mark.parametrize("text", [TOPOLOGY, MEASURED, CONFIGURED, WATTS, METRICS, stack(1, "send (a.py:1)")])
def test_any_prefix_is_read_or_refused(tmp_path: Path, text: str) -> None:
    for end in range(0, len(text), 7):
        try:
            imported(tmp_path, text[:end])
        except WindtunnelError:
            continue
