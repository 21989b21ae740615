"""A fault in any function of the monitor that PyTorch or Python calls: training goes on, with the weights of an unwatched run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.fleet import fence
from windtunnel.fleet.recorded import recorded_of_rings

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402
from windtunnel.fleet.watch import api  # noqa: E402

AROUND, HOOK = fence.Fence.wrap, fence.Fence.hook


def train(folder: Path) -> list[Any]:
    """A little of everything that the monitor times; the weights."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in torch.utils.data.DataLoader(torch.randn(6, 4), batch_size=2):
        model(inputs).square().sum().backward()
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0, async_op=True).wait()
        functional.wait_tensor(functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD))
        with watch.section("mine"):
            optimizer.step()

    def closure() -> Any:
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.save(model.state_dict(), folder / "weights.pt")
    optimizer.load_state_dict(optimizer.state_dict())
    model.load_state_dict(torch.load(folder / "weights.pt"))
    return [value.detach().clone() for value in model.parameters()]


def break_entry(monkeypatch: pytest.MonkeyPatch, name: str, behind: bool) -> list[str]:
    """The entry point `name` of monitors that start from now on fails, before or behind what it calls. Filled with its calls."""
    failed: list[str] = []

    def fail() -> None:
        failed.append(name)
        raise RuntimeError("put in by a test")

    def failing(original: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if behind:
                original(*args, **options)
            fail()

        return call

    def wrap(self: Any, original: Any, make: Callable[[Any], Any], given: str = "") -> Any:
        entry = given or getattr(original, "__qualname__", repr(original))
        return AROUND(self, original, failing if entry == name else make, given)

    def hook(self: Any, action: Callable[..., Any], otherwise: Any = None, name_: str = "", **options: str) -> Any:
        entry = options.get("name", name_) or getattr(action, "__qualname__", repr(action))
        return HOOK(self, failing(action) if entry == name else action, otherwise, entry)

    monkeypatch.setattr(fence.Fence, "wrap", wrap)
    monkeypatch.setattr(fence.Fence, "hook", hook)
    return failed


def test_a_fault_in_any_entry_point_leaves_the_weights_as_they_are(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = train(alone)
    watch.start(folder=alone, run="whole")
    entries = sorted(api._Monitor.session.fence.entries | {"closure"})
    assert len(entries) > 50
    watched = train(alone)
    watch.stop()
    assert all(map(torch.equal, watched, right))
    reached = set()
    for index, name in enumerate(entries):
        for behind in (False, True):
            with monkeypatch.context() as patched:
                failed = break_entry(patched, name, behind)
                watch.start(folder=alone, run=f"run{index}{behind}")
                assert all(map(torch.equal, train(alone), right)), name
                watch.stop()
            said = capsys.readouterr().err
            if failed:
                reached.add(name)
                assert said.count("this rank is not watched any more: RuntimeError") == 1, (name, said)
                facts = recorded_of_rings(alone / f"run{index}{behind}").facts
                assert any("the monitor ended by RuntimeError: put in by a test" in line for line in facts["unseen"]), name
    assert len(reached) >= 20, reached


def test_a_monitor_that_cannot_start_leaves_nothing_behind(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.autograd.backward, dist.ProcessGroup.allreduce

    def no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", no_thread)
    monkeypatch.setenv("WINDTUNNEL_FLEET_DIR", str(alone))
    watch.auto_start()
    assert not watch.active() and (torch.autograd.backward, dist.ProcessGroup.allreduce) == before
    assert capsys.readouterr().err == "windtunnel fleet: this rank is not watched: can't start new thread\n"
