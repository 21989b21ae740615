"""Modules are right before they are timed: equal to Hugging Face's and to plain formulas; hooks and memory are as stated."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from windtunnel.profile.case import Case  # noqa: E402
from windtunnel.profile.closure import Way  # noqa: E402
from windtunnel.profile.device import Device, open_device  # noqa: E402
from windtunnel.profile.layer_timing import Run, slope, time_phases  # noqa: E402
from windtunnel.profile.layers.study import LayerBench, time_parts  # noqa: E402
from windtunnel.profile.layers.trace import busy_times, by_part, shares  # noqa: E402
from windtunnel.profile.memory_run import memory_of  # noqa: E402
from windtunnel.profile.modules.compare import compare  # noqa: E402
from windtunnel.profile.modules.family import Own, family_of  # noqa: E402
from windtunnel.profile.modules.layer import (  # noqa: E402  # noqa: E402
    MLP,  # noqa: E402
    Attention,  # noqa: E402
    DecoderLayer,
    MoE,  # noqa: E402
    Stack,
    rotate,
    tables,
)
from windtunnel.profile.power import Silent  # noqa: E402
from windtunnel.profile.trace import Slice, Trace  # noqa: E402
from windtunnel.spec import Model, load_model  # noqa: E402

pytestmark = pytest.mark.torch

TINY = load_model("llama3.2-1b", ["hidden=64", "heads=4", "kv_heads=2", "head_dim=16", "ffn=96", "vocab=256"])


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cpu() -> Device:
    return open_device("cpu")


class Counting(Device):
    """A device whose clock is the number of marks so far."""

    def __init__(self) -> None:
        super().__init__(torch, "cpu")
        self.count = 0

    def mark(self) -> int:
        self.count += 1
        return self.count


def tiny(model: Model = TINY, **changes: Any) -> Case:
    return replace(Case(model, seq=16, dtype="fp32"), **changes)


# -- values and gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    {}, {"tp": 2}, {"tp": 4}, {"attention": "unfused"}, {"dtype": "bf16"}, {"experts": 4, "top_k": 2, "expert_ffn": 32},
    {"model": TINY.model_copy(update={"qkv_bias": True})}, {"model": TINY.model_copy(update={"linear_bias": True})},
])  # fmt: skip
def test_hugging_faces_layers_compute_the_same(cpu: Device, changes: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    case = tiny(**changes)
    theirs = family_of("hf", case)
    assert not isinstance(theirs, str)
    assert compare(case, theirs, cpu.place, 0) == {}


def test_a_difference_is_named_by_module(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another epsilon changes norms, and through them the layer; attention and MLP on their own stay equal."""
    huggingface = pytest.importorskip("windtunnel.profile.modules.huggingface")
    monkeypatch.setattr(huggingface, "EPSILON", 0.1)
    found = compare(tiny(), huggingface.twin_of(tiny()), cpu.place, 0)
    assert set(found) == {"norm", "layer"}
    assert found["norm"].startswith("values off by") and found["norm"].endswith("in fp32")


def test_a_wrong_gradient_is_seen_where_values_agree(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface = pytest.importorskip("windtunnel.profile.modules.huggingface")
    plain = huggingface.HeadLoss.forward
    monkeypatch.setattr(huggingface.HeadLoss, "forward", lambda self, x, labels: plain(self, x.detach() + 0 * x, labels))
    found = compare(tiny(), huggingface.twin_of(tiny()), cpu.place, 0)
    assert set(found) == {"head"} and found["head"].startswith("input gradient")


def test_models_without_a_twin_say_so() -> None:
    pytest.importorskip("transformers")
    assert "RMS norm" in str(family_of("hf", tiny(load_model("gpt3-175b"))))


def test_attention_is_softmax_over_earlier_keys() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 8, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)
    for window in (None, 3):
        expected = torch.zeros(1, 4, 8, 16)
        for head in range(4):
            for at in range(8):
                first = 0 if window is None else max(0, at - window + 1)
                keys, values = k[0, head // 2, first : at + 1], v[0, head // 2, first : at + 1]
                share = (keys @ q[0, head, at] / math.sqrt(16)).softmax(0)
                expected[0, head, at] = share @ values
        for kind in ("flash", "unfused"):
            made = Attention(tiny(TINY.model_copy(update={"window": window}), attention=kind))
            torch.testing.assert_close(made.core(q, k, v), expected)


def test_slices_of_a_layer_add_up() -> None:
    """What tensor parallelism rests on: the partial sums of all ranks are the whole module's output."""
    torch.manual_seed(0)
    x = torch.randn(2, 8, 64)
    whole, parts = MLP(tiny()), [MLP(tiny(tp=2)) for _ in range(2)]
    for rank, part in enumerate(parts):
        rows = slice(48 * rank, 48 * rank + 48)
        for name in ("gate", "up"):
            getattr(part, name).weight.data = getattr(whole, name).weight.data[rows]
        part.down.weight.data = whole.down.weight.data[:, rows]
    torch.testing.assert_close(sum(part(x) for part in parts), whole(x))


def test_a_token_goes_to_its_best_experts() -> None:
    torch.manual_seed(0)
    moe = MoE(tiny(experts=4, top_k=2, expert_ffn=32))
    x = torch.randn(1, 6, 64)
    expected = torch.zeros(6, 64)
    for token in range(6):
        share = moe.router(x[0, token]).softmax(0)
        best = share.topk(2)
        for weight, expert in zip(best.values / best.values.sum(), best.indices, strict=True):
            gate, up = (x[0, token] @ moe.up[expert]).chunk(2)
            expected[token] += weight * ((torch.nn.functional.silu(gate) * up) @ moe.down[expert])
    torch.testing.assert_close(moe(x)[0], expected)


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    cos, sin = tables(8, 16, torch.device("cpu"), torch.float32)
    q, k = torch.randn(16).expand(1, 1, 8, 16), torch.randn(16).expand(1, 1, 8, 16)
    a, b = rotate(q, cos, sin)[0, 0], rotate(k, cos, sin)[0, 0]
    torch.testing.assert_close(a.norm(dim=-1), q[0, 0].norm(dim=-1))
    torch.testing.assert_close(a[3] @ b[1], a[6] @ b[4])


@pytest.mark.parametrize("recompute", ["selective", "ops", "full"])
def test_recomputing_changes_no_gradient(recompute: str) -> None:
    found = []
    for how in ("none", recompute):
        torch.manual_seed(0)
        case = tiny(recompute=how)
        stack = Stack([DecoderLayer(case), DecoderLayer(case)], how)
        x = torch.randn(1, 16, 64, requires_grad=True)
        stack(x, tables(16, 16, torch.device("cpu"), torch.float32)).square().sum().backward()
        found.append([x.grad, *(p.grad for p in stack.parameters())])
    torch.testing.assert_close(found[0], found[1])


# -- what is measured --------------------------------------------------------------------------------------------------


def test_hooks_see_every_module_once_a_pass() -> None:
    """On a clock that counts marks, begin and end of a module follow each other, as none of these modules lies in another."""
    device = Counting()
    run, placed = LayerBench(tiny(), Own(), "eager", device, 0).stack(3)
    parts = time_parts(run, placed, Own(), device, 0, 2, lambda: None)
    assert {key: timing.seconds for key, timing in parts.timings.items()} == {
        (op, phase): 1.0 for op in ("norm", "attention", "mlp") for phase in ("forward", "backward")
    }
    assert parts.names == {"norm": "RMSNorm", "attention": "Attention", "mlp": "MLP"}
    assert parts.ways == {phase: Way(2 * 4 * 3 + 1, 1) for phase in ("forward", "backward")}  # against plain passes of one tick


def test_hooks_see_modules_called_by_keyword() -> None:
    pytest.importorskip("transformers")
    device, theirs = Counting(), family_of("hf", tiny())
    assert not isinstance(theirs, str)
    run, placed = LayerBench(tiny(), theirs, "eager", device, 0).stack(2)
    parts = time_parts(run, placed, theirs, device, 0, 1, lambda: None)
    assert parts.timings["attention", "backward"].seconds == 1.0
    assert parts.names["attention"] == "LlamaAttention"


def test_phases_are_timed_apart(cpu: Device) -> None:
    run, _ = LayerBench(tiny(), Own(), "eager", cpu, 0).stack(1)
    ticks: list[int] = []
    found = time_phases(run, cpu, Silent(), 2, 5, lambda: ticks.append(1))
    assert len(ticks) == 7
    for phase in ("forward", "backward", "optimizer"):
        timing = found[phase]
        assert timing.repeats == 5 and 0 < timing.seconds_min <= timing.seconds <= timing.seconds_max
        assert timing.host_seconds is None  # a CPU is its own host
    assert all(p.grad is None for p in run.parameters)


def test_the_slope_is_what_a_layer_adds() -> None:
    assert slope({1: 5.0, 2: 7.0, 4: 11.0}) == pytest.approx(2.0)
    assert slope({4: 1.0}) is None


def test_memory_of_a_product_by_hand(cpu: Device) -> None:
    """y = exp(x w), 256 x 64 by 64 x 128 in fp32: exp keeps its output; backward makes one gradient of the same size on the way."""
    x, w = torch.randn(256, 64), torch.randn(64, 128, requires_grad=True)
    out = 256 * 128 * 4
    memory = memory_of(Run(lambda: (x @ w).exp(), torch.ones(256, 128), [w], []), cpu)
    assert memory.saved == out
    assert memory.peak["forward"] == (64 * 128 + 256 * 128) * 4 + 2 * out  # weight, gradient given, product and its exponential
    assert memory.timeline.kinds["gradient"][-1] == w.numel() * 4
    assert memory.timeline.peak()["parameter"] == w.numel() * 4
    assert memory.timeline.peak()["activation"] == out


def test_a_stack_needs_what_its_state_takes(cpu: Device) -> None:
    bench = LayerBench(tiny(), Own(), "eager", cpu, 0)
    run, _ = bench.stack(2)
    assert bench.needed_bytes(2) == 16.0 * sum(p.numel() for p in run.parameters)
    half = LayerBench(tiny(dtype="bf16"), Own(), "eager", cpu, 0)
    assert half.needed_bytes(2) == 16.0 * sum(p.numel() for p in run.parameters)  # 2 + 2 + 4 of a master copy + 8


def test_weights_depend_on_the_seed_only(cpu: Device) -> None:
    torch.randn(5)
    first, _ = LayerBench(tiny(), Own(), "eager", cpu, 3).stack(1)
    second, _ = LayerBench(tiny(), Own(), "eager", cpu, 3).stack(1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))
    assert torch.get_default_dtype() is torch.float32


def test_master_weights_follow_the_update(cpu: Device) -> None:
    run, _ = LayerBench(tiny(dtype="bf16"), Own(), "eager", cpu, 0).stack(1)
    assert run.update is not None
    before = [p.detach().clone() for p in run.parameters]
    run.backward(run.forward())
    run.update.step()
    assert run.update.stepped[0].dtype is torch.float32
    for copy, parameter, old in zip(run.update.stepped, run.parameters, before, strict=True):
        assert torch.equal(copy.to(torch.bfloat16), parameter)
        assert not torch.equal(copy, old.float())  # also where the step is too small for 16 bits, as in norms


def test_a_cuda_graph_is_captured_with_the_real_input(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def capture(module: Any, inputs: tuple[Any, ...]) -> Any:
        seen.append([x.requires_grad for x in inputs])
        return module

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    LayerBench(tiny(), Own(), "cuda_graph", cpu, 0).stack(1)
    LayerBench(tiny(), Own(), "cuda_graph", cpu, 0).step(1)
    # a stack's hidden states; a step's tokens and labels, its embedding's tokens, its stack, its norm, its head
    assert seen == [[True], [False, False], [False], [True], [True], [True, False]]


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler backend of a CPU needs g++")
def test_compiled_modules_compute_the_same(cpu: Device) -> None:
    plain = LayerBench(tiny(), Own(), "eager", cpu, 0).step(1)[0]["norm"]
    compiled = LayerBench(tiny(), Own(), "compile", cpu, 0).step(1)[0]["norm"]
    torch.testing.assert_close(compiled.forward(), plain.forward())
    for run in (plain, compiled):
        run.backward(run.forward())
    torch.testing.assert_close(compiled.inputs[0].grad, plain.inputs[0].grad)


def test_kernels_belong_to_the_part_around_them() -> None:
    def one(module: str, phase: str, seconds: float) -> Slice:
        return Slice(module, phase, "aten::mm", "aten::mm", (), (), 0.0, seconds, 0.5)

    trace = Trace((one("layers.0.mlp.up", "forward", 1.0), one("layers.1.mlp", "forward", 2.0), one("layers.1", "forward", 9.0),
                   one("layers.1.mlp.down", "backward", 4.0)), 20.0)  # fmt: skip
    assert by_part([trace], {"layers.0.mlp": "mlp", "layers.1.mlp": "mlp"}) == {("mlp", "forward"): 1.5, ("mlp", "backward"): 2.0}
    assert busy_times([trace], "forward") == (12.0, 1.0, 3)  # the wait before the first of all is no gap
    assert busy_times([trace], "backward") == (4.0, 0.5, 1)


def test_shares_of_passes_are_against_both_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 s of work in 2 s forward, 1 s in 1 s backward: together 2/3 of the clock, of which the one has 3/4 and the other 3/2."""
    device = open_device("cpu")
    monkeypatch.setattr(type(device), "seconds_between", lambda self, begin, end: end - begin)
    found = shares([(0.0, 0.0), (1.0, 2.0), (2.0, 3.0)], device)
    assert found == pytest.approx({"forward": 0.75, "backward": 1.5})
