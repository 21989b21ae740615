"""GPU and NIC counters by recorded samples of exporters, and what alarms say of them."""

from __future__ import annotations

from pathlib import Path

from windtunnel.fleet.agent.gpu_health import GpuHealth, NicHealth
from windtunnel.fleet.device_watch import LASTS, CounterWatch, DeviceWatch, parse_samples
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.monitor import Alarm

RECORDED = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="GPU-1",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="H100",Hostname="n7"}} 1980
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{gpu="3",UUID="GPU-4",device="nvidia3",modelName="NVIDIA H100",Hostname="n7"}} {reasons}
DCGM_FI_DEV_XID_ERRORS{{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA H100",Hostname="n7",err_code="0"}} {xid}
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{gpu="2",UUID="GPU-3",device="nvidia2",Hostname="n7"}} {replays}
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{gpu="2",UUID="GPU-3",device="nvidia2",Hostname="n7"}} 12
DCGM_FI_PROF_SM_ACTIVE{{gpu="0",Hostname="n7"}} 0.81
DCGM_FI_PROF_SM_ACTIVE{{gpu="1",Hostname="n7"}} 0.79
DCGM_FI_PROF_SM_ACTIVE{{gpu="2",Hostname="n7"}} {active}
node_infiniband_symbol_error_total{{device="mlx5_0",port="1"}} {symbols}
node_infiniband_link_downed_total{{device="mlx5_0",port="1"}} {downed}
node_ethtool_rx_prio3_pause{{device="eth0"}} {pauses}
node_ethtool_np_ecn_marked_roce_packets{{device="eth0"}} {marks}
"""
WELL = {"reasons": 4, "xid": 0, "replays": 7, "active": 0.78, "symbols": 5, "downed": 2, "pauses": 10, "marks": 20}


def sample(**changed: float) -> str:
    return RECORDED.format(**(WELL | changed))


def test_samples_are_read_and_others_left_out() -> None:
    read = parse_samples(sample() + 'half a li\nname 3\nbroken{a="b" 3\n\x00\n')
    assert len(read) == 13 and read[0][1]["Hostname"] == "n7" and read[-1] == ("name", {}, 3.0)


def test_what_rises_is_told_and_what_was_there_before_is_not() -> None:
    watch = CounterWatch()
    assert watch.look(sample()) == ((), ())
    faults, congestion = watch.look(sample(replays=19, symbols=500, downed=3, xid=79, pauses=90_000, marks=5_000))
    assert faults == (
        "GPU 1 of n7 reports Xid 79", "GPU 2 of n7 has NVLink replay errors: 12",
        "port 1 of mlx5_0 has symbol errors: 495", "port 1 of mlx5_0 has lost its link: 1",
    )  # fmt: skip
    assert congestion == ("eth0 was paused by PFC: 89,990", "eth0 has received packets with ECN marks: 4,980")
    assert watch.look(sample(replays=0)) == ((), ())  # the machine began anew


def test_a_throttled_and_an_idle_gpu_are_told_when_it_lasts() -> None:
    watch = CounterWatch()
    looks = [watch.look(sample(reasons=0x44, active=0.2))[0] for _ in range(LASTS)]
    assert looks[:-1] == [()] * (LASTS - 1)
    assert looks[-1] == (
        "GPU 2 of n7 computes less than the others: its SMs are far less active",
        "GPU 3 of n7 is throttled: hardware thermal slowdown",
    )
    assert watch.look(sample()) == ((), ())


def test_alarms_are_told_once_and_explain_others(tmp_path: Path) -> None:
    exporter = tmp_path / "metrics"
    exporter.write_text(sample())
    watch = DeviceWatch([str(exporter), str(tmp_path / "none")], GpuHealth(None, nics=NicHealth(tmp_path / "class")))
    slow = Alarm(1.0, Verdict.SLOW_LINK, (2, 3), (), "the link is slow")
    assert watch.look(0.0) == [] and watch.explain(slow) == slow
    exporter.write_text(sample(downed=3, pauses=90_000))
    (alarm,) = watch.look(20.0)
    assert (alarm.verdict, alarm.text) == (Verdict.DEVICE, "port 1 of mlx5_0 has lost its link: 1")
    assert watch.explain(slow).text.splitlines()[1] == (
        "meanwhile: port 1 of mlx5_0 has lost its link: 1; eth0 was paused by PFC: 89,990"
    )
    data = Alarm(1.0, Verdict.DATA, (2,), (), "batches are late")
    assert watch.explain(data) == data
    exporter.write_text(sample(downed=4, pauses=90_000))
    assert watch.look(25.0) == watch.look(40.0) == []
    exporter.write_text("")
    assert watch.look(60.0) == []  # it does not answer
    exporter.write_text(sample())
    assert [told.cleared for told in watch.look(80.0)] == [True]
