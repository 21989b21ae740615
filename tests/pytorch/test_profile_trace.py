"""A module's operators, forward and backward, attributed to the sub-module that they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windtunnel.profile.device import open_device
from windtunnel.profile.trace import profile_call

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def block() -> Any:
    """A residual block: norm, up, down, and a ReLU and an add that belong to the block itself."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.relu(self.up(self.norm(x))))

    return nn.Sequential(Block(), Block())


def test_operators_find_their_modules() -> None:
    model = block()
    x = torch.randn(32, 64, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()

    trace = profile_call(step, open_device("cpu"), model)
    ops = [(one.module, one.phase, one.op) for one in trace.slices]
    for number in "01":
        assert ops.count((f"{number}.up", "forward", "aten::addmm")) == 1
        assert ops.count((f"{number}.down", "forward", "aten::addmm")) == 1
        assert ops.count((number, "forward", "aten::relu")) == 1
        assert ops.count((f"{number}.norm", "forward", "aten::native_layer_norm")) == 1
        assert ops.count((f"{number}.up", "backward", "aten::mm")) == 2  # gradients of input and weight
        assert ops.count((f"{number}.down", "backward", "aten::mm")) == 2
        assert ops.count((number, "backward", "aten::threshold_backward")) == 1
        assert ops.count((f"{number}.norm", "backward", "aten::native_layer_norm_backward")) == 1
    assert {phase for _, phase, op in ops if "AccumulateGrad" in op} == {"backward"}
    assert any(phase == "optimizer" for _, phase, _ in ops)
    product = next(one for one in trace.slices if one.module == "0.up" and one.op == "aten::addmm")
    assert product.shapes[:3] == ((128,), (32, 64), (64, 128)) and product.dtypes[0] == "float"


def test_operators_and_gaps_are_the_window() -> None:
    model = block()
    x = torch.randn(256, 64)
    trace = profile_call(lambda: model(x), open_device("cpu"), model)
    assert all(one.seconds >= 0 and one.gap >= 0 for one in trace.slices)
    covered = trace.kernels + trace.gaps + trace.slices[0].gap
    # What follows the last one in the window is no gap, however long others have the core.
    last = max(trace.slices, key=lambda one: one.begin)
    assert 0.999 * (last.begin + last.seconds) < covered <= 1.001 * trace.seconds
    assert sum(trace.by_module().values()) == pytest.approx(trace.kernels)


def test_hooks_are_gone_afterwards(tmp_path: Any) -> None:
    model = block()
    profile_call(lambda: model(torch.randn(4, 64)), open_device("cpu"), model)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    with torch.profiler.profile() as taken:
        model(torch.randn(4, 64))
    taken.export_chrome_trace(str(tmp_path / "t.json"))
    assert "windtunnel" not in json.dumps(json.loads((tmp_path / "t.json").read_text())["traceEvents"])
