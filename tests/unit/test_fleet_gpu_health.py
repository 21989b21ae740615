"""What is said of a node's GPUs, by a stand-in for NVML; and what the driver makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet_world import World, virtual

from windtunnel.fleet.agent.gpu_health import COUNTERS, LASTS, GpuHealth, NicHealth
from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.plan import JobPlan, RecoveryContext, RecoveryPolicy, decide
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.records.incidents import read_incidents


class FakeNvml:
    """Two GPUs, of which a test changes figures. It has no function that a test did not name."""

    def __init__(self) -> None:
        self.clocks, self.reasons = [1980, 1980], [0, 0]
        self.errors, self.link_errors, self.lost = [7, 0], {(0, 4, 1): 2}, False
        self.lanes, self.replays = 16, 3

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:
        return at

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:
        if self.lost and gpu == 1:
            raise RuntimeError("GPU is lost")
        return self.clocks[gpu]

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: int) -> int:
        return self.reasons[gpu]

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:
        return self.errors[gpu]

    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: int, link: int, counter: int) -> int:
        if link > 5:
            raise RuntimeError("Not Supported")
        return self.link_errors.get((gpu, link, counter), 0)

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: int) -> int:
        return self.lanes

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: int) -> int:
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, gpu: int) -> int:
        return self.replays


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml()


def _health(nvml: Any, tmp_path: Path) -> GpuHealth:
    log = tmp_path / "kmsg"
    log.write_text("NVRM: Xid (PCI:0000:3b:00): 13, of yesterday\n")
    return GpuHealth(nvml, log, NicHealth(tmp_path / "class"))


def test_a_machine_without_gpus_or_nvml_says_nothing(tmp_path: Path) -> None:
    for library in (None, object()):
        health = _health(library, tmp_path)
        assert not health.has_gpus and health.look() == ()


def test_throttling_is_told_when_it_lasts(nvml: FakeNvml, tmp_path: Path) -> None:
    health = _health(nvml, tmp_path)
    assert health.has_gpus and health.look() == ()
    nvml.clocks[1], nvml.reasons[1] = 1200, 0x8
    seen = [health.look() for _ in range(LASTS)]
    assert seen[:-1] == [()] * (LASTS - 1)
    assert seen[-1] == ("GPU 1 is throttled: 1,200 of 1,980 MHz, hardware slowdown",)
    nvml.clocks[1], nvml.reasons[1] = 1980, 0
    assert health.look() == ()


@pytest.mark.parametrize(
    ("clock", "reasons", "told"), [(1800, 0x4, False), (1200, 0x4, True), (300, 0x1, False), (300, 0x9, False)]
)
def test_a_small_power_cap_or_an_idle_gpu_is_no_fault(nvml: FakeNvml, tmp_path: Path, clock: int, reasons: int, told: bool) -> None:
    health = _health(nvml, tmp_path)
    nvml.clocks[0], nvml.reasons[0] = clock, reasons
    seen = [health.look() for _ in range(LASTS + 1)]
    assert bool(seen[-1]) == told


def test_counters_count_from_the_begin(nvml: FakeNvml, tmp_path: Path) -> None:
    health = _health(nvml, tmp_path)
    assert health.look() == ()
    nvml.errors[0], nvml.link_errors = 9, {(0, 4, 1): 14}
    assert set(health.look()) == {
        "GPU 0 has memory errors that ECC did not correct: 2", "NVLink 4 of GPU 0 has recovery errors: 12"
    }  # fmt: skip


def test_pcie_is_told_by_lanes_and_by_many_replays(nvml: FakeNvml, tmp_path: Path) -> None:
    health = _health(nvml, tmp_path)
    assert health.look() == ()
    nvml.replays += 20
    assert health.look() == ()
    nvml.replays += 2000
    assert health.look() == tuple(f"GPU {gpu} has sent PCIe packets again: 2,020" for gpu in (0, 1))
    nvml.lanes = 8
    assert health.look() == tuple(f"GPU {gpu} has a narrow PCIe link: 8 of 16 lanes" for gpu in (0, 1))


@pytest.mark.parametrize("name", COUNTERS)
def test_a_ports_counters_are_told_from_their_rise(name: str, tmp_path: Path) -> None:
    port = tmp_path / "class/infiniband/mlx5_3/ports/1"
    least, what = COUNTERS[name]
    for other in COUNTERS:
        (port / other).parent.mkdir(parents=True, exist_ok=True)
        (port / other).write_text("77\n")
    (port / "hw_counters/np_cnp_sent").write_text("5\n")
    health = GpuHealth(None, tmp_path / "kmsg", NicHealth(tmp_path / "class"))
    assert health.has_gpus and health.look() == ()
    (port / "hw_counters/np_cnp_sent").write_text("500000\n")
    (port / name).write_text(f"{77 + least - 1}\n")
    assert health.look() == ()
    (port / name).write_text(f"{77 + least}\n")
    assert health.look() == (f"port 1 of mlx5_3 {what}: {least:,}",)
    (port / name).write_text("broken")
    assert health.look() == ()


def test_an_xid_and_a_lost_gpu_are_told(nvml: FakeNvml, tmp_path: Path) -> None:
    health = _health(nvml, tmp_path)
    with (tmp_path / "kmsg").open("a") as log:
        log.write("eth0: up\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    nvml.lost = True
    assert health.look() == (
        "GPU 1 is lost: the driver does not reach it", "the GPU at PCI 0000:3b:00 reports Xid 79: see the kernel's log"
    )  # fmt: skip
    health.close()


def test_a_node_with_a_sick_gpu_is_replaced_at_its_next_fault() -> None:
    fault = DetectedFault("crash", ("n1",), (3,), "SIGKILL", 1.0, 1.0)
    well = RecoveryContext(("n0", "n1"), frozenset({"n0", "n1", "n2"}), ("n2",))
    sick = RecoveryContext(("n0", "n1"), frozenset({"n0", "n1", "n2"}), ("n2",), sick=frozenset({"n1"}))
    other = RecoveryContext(("n0", "n1"), frozenset({"n0", "n1", "n2"}), ("n2",), sick=frozenset({"n0"}))
    assert decide(fault, well, RecoveryPolicy()).action == "retry"
    assert decide(fault, other, RecoveryPolicy()).action == "retry"
    decision = decide(fault, sick, RecoveryPolicy())
    assert (decision.action, decision.nodes, decision.evict) == ("replace", ("n0", "n2"), ("n1",))


def test_the_driver_tells_of_a_gpu_once(tmp_path: Path) -> None:
    world = World(JobPlan(("train",), 2, 2, 0, "job", str(tmp_path)), tmp_path)
    texts = iter(range(1200, 1900))

    before = Roster.on_beat

    def beat(self: Roster, node: AgentNode, said: Any) -> None:
        before(self, node, said)
        if node.name == "n1":
            node.gpus = (f"GPU 3 is throttled: {next(texts):,} of 1,980 MHz, hardware slowdown",)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Roster, "on_beat", beat)
        assert virtual(world.run([])) == 0
    (one,) = read_incidents(tmp_path)
    assert (one.what, one.node, one.outcome, one.seconds.down) == ("gpu", "n1", "ignored", 0.0)
    assert one.evidence.startswith("GPU 3 is throttled: 1,2") and sum("GPU 3 is throttled" in line for line in world.history) == 1
