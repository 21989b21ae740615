"""The monitor in one process: what it replaces and puts back, what it finds, how it times a device. gloo, a group of one rank."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from windtunnel.base.comm import Comm
from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.fleet.ring import RingReader, RingWriter, RowState
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.watch.device import DeviceEvents
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.fleet.show import fleet_notes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import torch.distributed as dist  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402
from windtunnel.fleet.watch import api  # noqa: E402
from windtunnel.fleet.watch.calls import COLLECTIVES, TRANSFERS  # noqa: E402
from windtunnel.fleet.watch.functional_collectives import FUNCTIONS  # noqa: E402


def start(folder: Path, **changes: Any) -> None:
    watch.start(folder=folder, run="run", **changes)


def table(folder: Path) -> Sections:
    return recorded_of_rings(folder / "run").sections


def steps_of(model: Any, count: int, optimizer: Any = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def replaced() -> dict[str, Any]:
    """Everything that the monitor may replace, as it is now."""
    import torch.distributed._functional_collectives as functional
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.pipelining.stage import _PipelineStageBase
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    owners: list[tuple[Any, list[str]]] = [
        (dist.ProcessGroup, [*COLLECTIVES, *TRANSFERS, "_start_coalescing", "_end_coalescing"]),
        (dist.Work, ["wait"]), (functional, [*FUNCTIONS, "wait_tensor"]), (torch.autograd, ["backward"]), (torch, ["save"]),
        (dist, ["Reducer", "init_process_group", "_broadcast_coalesced"]), (_BaseDataLoaderIter, ["__next__"]),
        (checkpoint, ["save", "async_save"]),
        (DeviceMesh, ["__init__"]), (_PipelineStageBase, ["forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"]),
        (sys, ["excepthook"]),
    ]  # fmt: skip
    found = {f"{owner}.{name}": vars(owner).get(name) for owner, names in owners for name in names}
    hooks = {
        "forward": list(module._global_forward_hooks.values()),
        "before forward": list(module._global_forward_pre_hooks.values()),
        "optimizer": list(optimizer._global_optimizer_pre_hooks.values()),
        "after": list(optimizer._global_optimizer_post_hooks.values()),
        "garbage": list(gc.callbacks), "finders": list(sys.meta_path),
    }  # fmt: skip
    return {**found, **hooks}


def test_stop_puts_every_function_back(alone: Path) -> None:
    before = replaced()
    start(alone)
    during = replaced()
    changed = {name for name in before if before[name] is not during[name] and before[name] != during[name]}
    assert len(changed) > 50 and not {"forward", "optimizer", "garbage"} - changed
    watch.stop()
    after = replaced()
    assert [name for name in before if before[name] is not after[name] and before[name] != after[name]] == []


def test_hooks_of_modules_are_taken_off(alone: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    start(alone)
    steps_of(model, 4)
    assert len(model._forward_hooks) == len(model._forward_pre_hooks) == 1 and not model[0]._forward_hooks
    watch.stop()
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_a_module_that_was_exchanged_is_found(alone: Path) -> None:
    start(alone)
    steps_of(torch.nn.Linear(4, 4), 4)
    other = torch.nn.Sequential(torch.nn.Linear(4, 4))
    steps_of(other, 4)
    watch.stop()
    found = table(alone).where(table(alone).section == Section.FORWARD)
    assert [found.names[name] for name in found.name].count("Sequential") >= 3


def test_loss_modules_and_recomputation_are_no_forwards_of_their_own(alone: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Recomputed(torch.nn.Linear):
        def forward(self, inputs: Any) -> Any:
            return checkpoint(super().forward, inputs, use_reentrant=True)

    model, loss = Recomputed(4, 4), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start(alone)
    for _ in range(3):
        loss(model(torch.ones(2, 4, requires_grad=True)), torch.zeros(2, 4)).backward()
        optimizer.step()
    watch.stop()
    found = table(alone)
    for section in (Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER):
        assert found.step[found.section == section].tolist() == [0, 1, 2], section


def test_batches_saves_ranges_and_collections(alone: Path) -> None:
    from torch.utils.data import DataLoader

    start(alone, gap_ns=0)
    model = torch.nn.Linear(4, 4)
    for batch in DataLoader(torch.ones(4, 4), 2, num_workers=1):
        with watch.section("mine"):
            model(batch).sum().backward()
        gc.collect()
        watch.step()
    torch.save(model.state_dict(), alone / "weights.pt")
    beside = threading.Thread(target=torch.save, args=(model.state_dict(), alone / "beside.pt"))
    beside.start()
    beside.join()
    watch.stop()
    found = table(alone)
    names = [found.names[name] if name >= 0 else "" for name in found.name]
    assert (found.section == Section.DATA).sum() == 3  # two batches and the end
    assert names.count("mine") == 2 and names.count("torch.save") == 1 and names.count("gc 2") >= 2
    assert found.step[found.section == Section.STEP].tolist() == [0, 1, 2]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_is_no_part_of_the_optimizer(alone: Path, by_name: bool) -> None:
    """LBFGS calls it again and again, others once before they update: its forwards and backwards lie between their sections."""
    start(alone)
    model = torch.nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)]

    def closure() -> Any:
        loss = (model(torch.ones(2, 4)) ** 2).sum()
        loss.backward()
        return loss

    for optimizer in optimizers:
        loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
        assert loss is not None
    watch.stop()
    found = table(alone)
    found = found.where(np.isin(found.section, [Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER]))
    order = np.argsort(found.begin, kind="stable")
    assert (found.begin[order][1:] >= (found.begin + found.seconds)[order][:-1] - 1e-9).all()
    kinds = found.section[order].tolist()
    assert kinds[:3] == [Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER] and found.step.max() == 1
    again = kinds[3:].count(Section.FORWARD)
    assert again > 1 and kinds[3:] == [Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER] * again


def test_an_optimizer_that_failed_does_not_blind_the_monitor(alone: Path) -> None:
    """Not one whose step raises, nor one whose closure does: training that goes on has its steps."""
    start(alone)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps_of(model, 1, optimizer)
    rate = optimizer.param_groups[0].pop("lr")
    with pytest.raises(KeyError):
        steps_of(model, 1, optimizer)
    optimizer.param_groups[0]["lr"] = rate
    steps_of(model, 2, optimizer)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    steps_of(model, 1, optimizer)
    watch.stop()
    found = table(alone)
    done = found.where((found.section == Section.OPTIMIZER) & np.isfinite(found.seconds))
    assert done.step.tolist() == [0, 1, 2, 3]


def test_weights_that_are_saved_as_safetensors_are_a_checkpoint(alone: Path) -> None:
    pytest.importorskip("safetensors")
    sys.modules.pop("safetensors.torch", None)
    start(alone)
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(4)}, str(alone / "weights.safetensors"))
    watch.stop()
    found = table(alone)
    saves = found.where(found.section == Section.CHECKPOINT)
    assert [found.names[name] for name in saves.name] == ["safetensors.save_file"] and saves.seconds[0] > 0


def test_the_user_says_the_micro_batch(alone: Path) -> None:
    start(alone)
    model = torch.nn.Linear(4, 4)
    for index in (5, 6):
        watch.micro_batch(index)
        model(torch.ones(1, 4)).sum().backward()
    watch.stop()
    found = table(alone)
    assert found.micro_batch[found.section == Section.FORWARD].tolist() == [5, 6]
    assert found.micro_batch[found.section == Section.BACKWARD].tolist() == [5, 6]


@pytest.mark.parametrize(("detail", "seen"), [("full", [0, 1, 2, 3]), ("steps:2", [0, 2]), ("summary", [])])
def test_the_policy_says_which_calls_are_recorded(alone: Path, detail: str, seen: list[int]) -> None:
    start(alone, detail=detail)
    for _ in range(4):
        dist.all_reduce(torch.ones(2))
        watch.step()
    watch.stop()
    found = table(alone).where(table(alone).section == Section.CALL)
    assert found.step.tolist() == seen == found.call.tolist()  # numbers count what is left out


def test_a_summary_has_all_sections_but_calls_and_says_so(alone: Path) -> None:
    start(alone, detail="summary")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
        with watch.section("own"):
            steps_of(model, 1, optimizer)
    watch.stop()
    found = table(alone)
    for section in (Section.STEP, Section.FORWARD, Section.BACKWARD, Section.OPTIMIZER, Section.RANGE):
        assert found.step[found.section == section].tolist()[:3] == [0, 1, 2], section
    assert not (found.section == Section.CALL).any()
    assert any("Recorded without calls" in note for note in fleet_notes(recorded_of_rings(alone / "run")))


def test_what_a_compiled_graph_does_is_recorded_and_its_result_unchanged(alone: Path) -> None:
    import torch.distributed._functional_collectives as functional

    class Summing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, given: Any) -> Any:
            return functional.all_reduce(self.inner(given), "sum", dist.group.WORLD)

    with torch.no_grad():
        expected = (model := Summing())(torch.ones(2, 4))
    model.compile(backend="aot_eager")
    start(alone)
    with torch.no_grad():
        assert torch.equal(model(torch.ones(2, 4)), expected)
    watch.step()
    assert (table(alone).section == Section.CALL).sum() == 1
    functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).sum()  # outside of the graph
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.inner(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    watch.stop()
    found = table(alone)
    assert found.step[found.section == Section.CALL].tolist() == [0, 1]


def test_a_compiled_module_that_may_leave_python_is_told(alone: Path) -> None:
    from torch._inductor import config

    start(alone)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model[0].compile(backend="eager")
    with config.patch(cpp_wrapper=True):
        steps_of(model, 2)
    watch.stop()
    notes = fleet_notes(recorded_of_rings(alone / "run"))
    assert (
        "Not recorded: collectives inside graphs of torch.compile that run without Python (CUDA graphs, a wrapper in C++)." in notes
    )


def test_the_cores_that_a_rank_may_use_are_a_fact_of_the_run(alone: Path) -> None:
    start(alone)
    watch.stop()
    ranges = recorded_of_rings(alone / "run").facts["cores"]
    assert {core for first, last in ranges for core in range(first, last + 1)} == os.sched_getaffinity(0)


def test_rows_beyond_a_steps_share_are_counted(alone: Path) -> None:
    start(alone, rows_a_step=10, gap_ns=10**15)  # no garbage collection leaves a row of its own
    for _ in range(30):
        dist.all_reduce(torch.ones(2))
    watch.stop()
    tail = RingReader(ring_path(alone / "run", 0)).read(0)
    assert tail.dropped == 21 and (tail.rows["section"] == Section.CALL).sum() == 9


def test_a_call_ends_with_its_future_though_its_work_does_not_say_so_yet(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo completes the future first; C++ code that waits for it may run on before the work is complete."""
    start(alone)
    monkeypatch.setattr(dist.Work, "is_completed", lambda work: False)
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.get_future().wait()
    watch.step()
    calls = table(alone).where(table(alone).section == Section.CALL)
    assert len(calls) == 1 and calls.seconds[0] > 0


def test_buffers_that_ddp_broadcasts_at_each_forward_are_a_call(alone: Path) -> None:
    """C++ broadcasts them and waits: without a row of its own that wait would be the rank's own forward."""
    start(alone)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(4))
    steps_of(model, 2)
    watch.stop()
    found = table(alone)
    named = [name >= 0 and found.names[name] == "broadcast_coalesced" for name in found.name]
    calls = found.where(np.array(named) & (found.comm == Comm.BROADCAST) & (found.step == 1))
    forward = found.where((found.section == Section.FORWARD) & (found.step == 1))
    assert calls.bytes.tolist() == [4 * 4 + 4 * 4 + 8]  # mean, variance, number of batches
    assert forward.begin[0] < calls.begin[0] and calls.begin[0] + calls.seconds[0] < forward.begin[0] + forward.seconds[0]


def test_a_group_made_late_has_numbers_of_its_own(alone: Path) -> None:
    start(alone)
    dist.all_reduce(torch.ones(2))
    late = dist.new_group([0], group_desc="mesh_tp")
    dist.all_reduce(torch.ones(2), group=late)
    watch.stop()
    found = table(alone).where(table(alone).section == Section.CALL)
    assert found.call.tolist() == [0, 0] and [found.group_names[group] for group in found.group] == ["world", "tp"]


def test_a_monitor_that_starts_again_goes_on(alone: Path) -> None:
    for _ in range(2):
        start(alone)
        dist.all_reduce(torch.ones(2))
        watch.step()
        watch.stop()
        dist.all_reduce(torch.ones(2))
    found = table(alone)
    assert found.step[found.section == Section.STEP].tolist() == [0, 1, 2, 3]
    assert found.call[found.section == Section.CALL].tolist() == [0, 1]


def test_a_child_leaves_the_ring_alone(alone: Path) -> None:
    start(alone)
    child = os.fork()
    if child == 0:
        with watch.section("of the child"):
            pass
        os._exit(3 if watch.active() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watch.active()
    watch.stop()
    assert "of the child" not in table(alone).names


def test_without_a_rank_it_waits_for_a_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    start(tmp_path)
    assert not watch.active()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert watch.active()
    watch.stop()
    dist.destroy_process_group()


# --- a device ---


class FakeEvent:
    """An event of a device whose clock the test sets; asking for times too early, or waiting, is an error."""

    device: SimpleNamespace

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self, stream: Any = None) -> None:
        self.at = self.device.ahead

    def query(self) -> bool:
        return bool(self.device.now >= self.at)

    def elapsed_time(self, other: FakeEvent) -> float:
        assert self.query() and other.query(), "asked before the events had come"
        return float(other.at - self.at) * 1e-6

    def synchronize(self) -> None:
        raise AssertionError("waited for the device")


def test_device_times_are_read_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(now=0, ahead=0)  # ns: where the device is, and where the work that was asked for ends
    monkeypatch.setattr(FakeEvent, "device", device, raising=False)
    host = SimpleNamespace(now=10**18)
    ring = RingWriter(tmp_path / "ring", "run", 0, 1)
    events = DeviceEvents(ring, SimpleNamespace(Event=FakeEvent), lambda: host.now)
    rows = []
    for number in range(100):
        rows.append(ring.write(Section.FORWARD, number, host.now))
        events.begin(rows[-1])
        device.ahead += 5_000_000  # five ms of work
        ring.rewrite(rows[-1], -1, 1000, RowState.ISSUED)
        events.end(rows[-1], host.now)
        host.now += 1_000_000  # the host runs ahead
        device.now += 1_000_000
        events.poll()
    tail = RingReader(tmp_path / "ring").read(0).rows
    assert (
        (tail["state"] == RowState.DONE).sum() == 20
        and (tail["nanos"][:20] == 5_000_000).all()
        and (tail["nanos"][20:] == -1).all()
    )
    device.now += 10**9
    host.now += 10**9
    for _ in range(4):
        events.poll()
    tail = RingReader(tmp_path / "ring").read(0).rows
    assert (tail["nanos"] == 5_000_000).all() and (tail["host_nanos"] == 1000).all()
    np.testing.assert_allclose(np.diff(tail["begin"]), 5_000_000, atol=2)
    assert abs(int(tail["begin"][0]) - 10**18) < 1000
    assert len(events._pool) <= 201  # events are used again


def test_a_whole_loop_never_waits_for_a_device(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor on a fake of torch.cuda whose every synchronisation raises."""
    device = SimpleNamespace(now=0, ahead=0)
    monkeypatch.setattr(FakeEvent, "device", device, raising=False)

    def refuse(*_: Any) -> None:
        raise AssertionError("waited for the device")

    fake = SimpleNamespace(
        Event=FakeEvent, is_available=lambda: True, is_initialized=lambda: True, get_device_name=lambda: "fake", synchronize=refuse
    )
    start(alone)
    api._Monitor.session._cuda = fake
    model = torch.nn.Linear(4, 4)
    for _ in range(6):
        device.now, device.ahead = device.ahead, device.ahead + 1_000_000
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2), async_op=True).wait()
        steps_of(model, 1)
    device.now = device.ahead
    watch.stop()
    rows = RingReader(ring_path(alone / "run", 0)).read(0).rows
    assert api._Monitor.session is None and (rows["state"] == RowState.DONE).sum() > 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_never_waited_for(alone: Path) -> None:
    torch.cuda.init()
    model = torch.nn.Linear(256, 256, device="cuda")
    inputs, optimizer = torch.ones(64, 256, device="cuda"), torch.optim.SGD(model.parameters(), lr=0.1)
    start(alone)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            model(inputs).sum().backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    watch.stop()
    rows = RingReader(ring_path(alone / "run", 0)).read(0).rows
    assert (rows["state"] == RowState.DONE).sum() > 40


def test_nothing_of_the_simulator_is_imported() -> None:
    code = (
        "import sys, torch; from windtunnel.fleet import watch; import windtunnel.fleet.watch.session, windtunnel.fleet.rings\n"
        "rooms = ('workload', 'engine', 'network', 'compute', 'memory', 'spec')\n"
        "bad = [m for m in sys.modules if m in ('pyarrow', 'pydantic', 'typer') or m.startswith(('windtunnel.predict.',)) "
        "or m.split('.')[:1] == ['windtunnel'] and m.split('.')[1:2] and m.split('.')[1] in rooms]\n"
        "print(bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout == "[]\n", done.stdout + done.stderr
