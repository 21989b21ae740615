"""Tables of jobs and nodes, tables of TraceLens, LLMCompass' hardware, and what is refused by what it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import FileError, SpecError, WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.machines.accounting.values import held_of, outcome_of, seconds_of, time_of
from windtunnel.formats.reading import Content, Reading

SACCT = """JobID|JobName|State|Submit|Start|End|Elapsed|NNodes|AllocTRES
17|train|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|02:00:00|4|billing=8,gres/gpu:h100=32,node=4
17.batch|batch|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|02:00:00|1|node=1
18|train|NODE_FAIL|2026-01-01T00:00:00|2026-01-02T00:00:00|2026-01-03T00:00:00|1-00:00:00|8|gres/gpu=64,node=8
19|train|CANCELLED by 1003|2026-01-01T00:00:00|Unknown|Unknown|00:00:00|0|
20|short
"""
BARE = """163485|163485|phillips|2016-12-22T07:15:12|2016-12-22T07:15:12|2016-12-22T07:15:13|2017-01-01T20:42:19|10-13:27:06|0:0|CANCELLED by 3|cpu=12,node=1|billing=12,gres/gpu=2,node=1|cpn-f11-31
165381|165381|phillips|2016-12-27T20:12:00|2016-12-27T20:12:01|2016-12-27T20:12:01|2017-01-01T20:12:27|5-00:00:26|1:0|TIMEOUT|cpu=64,node=8|billing=64,node=8|cpn-[01-08]
"""  # noqa: E501
FIXED = """       JobID    JobName      State    Elapsed   NNodes
------------ ---------- ---------- ---------- --------
          12      train  COMPLETED   01:00:00        2
          13      train OUT_OF_ME+   00:30:00        4
"""
LSF = "job_id,num_hosts,submit_time,start_time,finish_time,run_time,exit_status\n1,1,2022-02-14T08:00:00,2022-02-14T08:00:10,2022-02-14T08:01:10,0:01:00,0\n2,2,2022-02-14T08:00:00,2022-02-14T08:00:10,2022-02-14T08:01:10,0:01:00,1\n"  # noqa: E501
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,2951.0,8,1,e\n"
GAVEL = "ResNet-18 (batch size 32)\tcd %s && python3 main.py\t--num_steps\t1\t14612\t10.5\t4\n"
KERNELS = (
    "Parent op category,Kernel name,Kernel duration (µs)_sum,Percent of kernels time (%)\nGEMM,mm,1500.0,75\nGEMM,mm,500.0,25\n"
)
TIMES = "type,time ms,percent\ncomputation_time,30.0,75\nexposed_comm_time,10.0,25\ntotal_time,40.0,100\n"
HARDWARE: dict[str, Any] = {
    "name": "four", "device_count": 4,
    "interconnect": {"link": {"bandwidth_per_direction_byte": 25e9}, "link_count_per_device": 12, "topology": "FC"},
    "device": {
        "frequency_Hz": 1410e6, "compute_chiplet_count": 1, "memory": {"total_capacity_GB": 80},
        "io": {"memory_channel_active_count": 5, "pin_count_per_channel": 1024, "bandwidth_per_pin_bit": 3.2e9},
        "compute_chiplet": {"core_count": 108, "core": {
            "sublane_count": 4, "systolic_array": {"array_width": 16, "array_height": 16, "mac_per_cycle": 1},
            "vector_unit": {"fp32_count": 16}}},
    },
}  # fmt: skip


def read(tmp_path: Path, text: str | bytes, name: str = "table.txt") -> Reading:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_files([path])


def test_jobs_of_slurm(tmp_path: Path) -> None:
    reading = read(tmp_path, SACCT)
    facts = reading.facts
    assert reading.format == "jobs (sacct)" and facts["jobs"] == 3 and facts["job_steps"] == 1
    assert facts["outcomes"] == {"completed": 1, "node failed": 1, "stopped": 1} and facts["states"]["CANCELLED"] == 1
    assert facts["node_hours"] == 4 * 2 + 8 * 24 and facts["node_hours_per_node_failure"] == 200 and facts["multi_node"] == 2
    assert facts["gpu_hours"] == {"completed": 64.0, "node failed": 64 * 24.0} and facts["most_gpus"] == 64
    assert facts["most_wait_seconds"] == 86400 and len(reading.broken) == 1


def test_jobs_without_a_header(tmp_path: Path) -> None:
    facts = read(tmp_path, BARE).facts
    assert facts["states"] == {"CANCELLED": 1, "TIMEOUT": 1} and facts["gpu_jobs"] == 1 and facts["multi_node"] == 1
    assert facts["first"] == "2016-12-22T07:15:12" and facts["most_seconds"] == ((10 * 24 + 13) * 60 + 27) * 60 + 6


def test_other_tables_of_jobs(tmp_path: Path) -> None:
    assert read(tmp_path, FIXED).facts["outcomes"] == {"completed": 1, "failed": 1}
    assert read(tmp_path, LSF).facts["states"] == {"DONE": 1, "EXIT": 1}
    assert read(tmp_path, gzip.compress(PHILLY.encode())).facts["median_seconds"] == (66 + 2951) / 2
    gavel = read(tmp_path, GAVEL).facts
    assert gavel["jobs"] == 1 and gavel["most_gpus"] == 4 and gavel["first"] == 10.5
    with pytest.raises(FileError, match="without a job"):
        read(tmp_path, "job_name,inst_id,user,status,start_time,end_time\n")


def test_times_beyond_all_years(tmp_path: Path) -> None:
    assert read(tmp_path, PHILLY + "330000000000,1.0,1,1.0,x\n").facts["last"] == 3.3e11


def test_cells() -> None:
    assert [seconds_of(cell) for cell in ("1-00:00:01", "02:03", "00:00:01.5", "3 days 01:00:00", "7")] == [
        86401,
        123,
        1.5,
        262800,
        7,
    ]
    assert time_of("1970-01-02T00:00:00") == 86400 and time_of("Unknown") != time_of("Unknown")
    assert held_of("billing=12,gres/gpu:a100=2,gres/gpu=2,node=3") == {"gres/gpu": 2, "node": 3}
    assert [outcome_of(state) for state in ("CANCELLED+", "Pass", "NODE_FAIL", "Killed", "?")] == [
        "stopped", "completed", "node failed", "stopped", "other",
    ]  # fmt: skip


def test_lists_of_nodes(tmp_path: Path) -> None:
    facts = read(
        tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,786432,8,V100\nn2,96000,1,8,V100\n"
    ).facts
    assert (facts["nodes"], facts["gpus"], facts["gpus_by_model"]) == (3, 18, {"V100": 16, "P100": 2})
    with pytest.raises(FileError, match="without a node"):
        read(tmp_path, "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n")
    path = tmp_path / "cut.csv"  # a line before the header has one of its names
    path.write_text("of,each,model\nsn,cpu_milli,gpu\nn0,64000,2\n", encoding="utf-8")
    assert read_files([path], name="nodes").facts["gpus"] == 2


def test_tables_of_tracelens(tmp_path: Path) -> None:
    one = read(tmp_path, KERNELS, "kernel_summary.csv").facts
    assert one["ms"] == {"mm": 2.0} and one["rows"] == 2
    (tmp_path / "gpu_timeline.csv").write_text(TIMES, encoding="utf-8")
    both = read_files([tmp_path / "kernel_summary.csv", tmp_path / "gpu_timeline.csv"]).facts["by_table"]
    assert both["gpu_timeline.csv"]["total_ms"] == 40.0 and both["kernel_summary.csv"]["total_ms"] == 2.0


def test_hardware_of_llmcompass(tmp_path: Path) -> None:
    """NVIDIA's data sheet of the A100 says 312 TFLOP/s, 19.5 in fp32, 2,039 GB/s and 600 GB/s both ways together."""
    reading = read(tmp_path, json.dumps(HARDWARE))
    gpu = reading.value.node.gpu
    assert reading.content is Content.CLUSTER and reading.value.gpus == 4 and reading.value.node.scale_up.bandwidth == 300e9
    assert gpu.peak["bf16"] == pytest.approx(312e12, rel=1e-3) and gpu.peak["fp32"] == pytest.approx(19.5e12, rel=1e-3)
    assert gpu.memory_bandwidth == pytest.approx(2.039e12, rel=5e-3) and gpu.memory == 80e9
    with pytest.raises(SpecError, match="core_count"):
        read(tmp_path, json.dumps(HARDWARE).replace('"core_count": 108', '"core_count": -1'))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("PGID   | Process Group Desc        | Op Type\n74 | EP | nccl:all_to_all\n", "analysis of flight recorder dumps"),
        ("Fault ranks: [12, 14]\nFault delay: 180.0\n", "faults that were injected"),
        ("# Clocks\nDCGM_FI_DEV_SM_CLOCK,  gauge, SM clock\nDCGM_FI_DEV_MEM_CLOCK, gauge, clock\n", "dcgm-exporter collects"),
        ("Mon Nov 23\n+---+\n| NVIDIA-SMI 550.54.15   Driver Version: 550 |\n", "no value of a part of a node"),
        ("Machine (1007GB total)\n  Package L#0\n", "what lstopo draws as text"),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu up 1-00 4 idle n[1-4]\n", "what sinfo prints"),
        ("<h2>KernelLaunch</h2>\n<table>\n", "a page in HTML"),
        ('[{"CreatedAt": "2025-11-04"}]', "a list in JSON"),
        ("[0]: loading\n[0]: done\n", "a log without a line"),
        ("srun --ntasks=1 hostname\n", "a text that no reader takes"),
        ("clusters:\n  - a\nschedulers:\n  - b\ntraces:\n  - c\n", "Vidur"),
        (
            "[2024-07-03 19:15:16] [INFO] a\n[2024-07-03 19:15:17] [INFO] b\n[2024-07-03 19:15:18] [INFO] c\n",
            "a log without a line",
        ),
        (
            "# Update\n\n**Written by:** us\n\nThis is the update of a run that we have been training for weeks.\n\n"
            "It has gone through ten percent of its data so far, with failures in between.\n",
            "a document in Markdown",
        ),
        (gzip.compress(bytes(range(128, 256)), mtime=0), "a gzip file of no known kind"),
    ],
)
def test_what_is_refused_says_what_it_is(tmp_path: Path, text: str | bytes, what: str) -> None:
    with pytest.raises(WindtunnelError, match=what):
        read(tmp_path, text)
