"""Every kernel class on a CPU at tiny shapes: that it computes what its row says, and what a sweep does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import EngineError
from windtunnel.profile.device import Device, open_device
from windtunnel.profile.kernels import (
    activation,
    attention,
    copy,
    cross_entropy,
    embedding,
    gemm,
    grouped_gemm,
    launch,
    norm,
    optimizer,
    permute,
    reduce,
    residual,
    rope,
    softmax,
)
from windtunnel.profile.kernels.case import Bench, KernelCase, Run, Unavailable
from windtunnel.profile.kernels.grouped_gemm import ExpertShapes
from windtunnel.profile.kernels.pointwise import one
from windtunnel.profile.kernels.scope import Scope
from windtunnel.profile.session import Session
from windtunnel.profile.sweep import make_run, sweep
from windtunnel.profile.timing import Protocol
from windtunnel.records import About, read

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

QUICK = Protocol(warmup=1, repeats=3, least=1, most_seconds=0.02, flush=False)
SCOPE = Scope((), (1,), (16,), (16,), ("fp32",), cuda=False, variants=False)
EXPERTS = ExpertShapes("tiny", 16, 32, 4, 2, (2,))
HEADS = attention.AttentionHeads(4, 2, 8, 8)


def rows(kernel: Any) -> list[KernelCase]:
    """Both passes of a kernel that moves bytes."""
    passes = zip(("forward", "backward"), kernel.moved, strict=True)
    return [one(kernel, phase, 16, 32, "fp32", 1.0, 0.0) for phase, times in passes if times]


CASES: dict[str, list[KernelCase]] = {
    "gemm": [
        *gemm.passes(SCOPE, "up", 16, 8, 4, "fp32", 0.0, None),
        *gemm.batched_cases(SCOPE, 2, 16, 8, 0.0),
        *gemm.passes(SCOPE, "up", 16, 8, 4, "tf32", 0.0, None),
    ],
    "grouped_gemm": [
        case
        for way in grouped_gemm.FASHIONS
        for case in grouped_gemm.layer(replace(SCOPE, dtypes=("bf16",)), EXPERTS, 2, 16, way, 0.0)
    ],
    "attention": [
        attention.case(name, "aten", phase, HEADS, 16, causal, None, "fp32", 0.0)
        for name in ("sdpa_flash", "sdpa_math")
        for phase in ("forward", "backward")
        for causal in (True, False)
    ],
    "norm": [case for kernel in norm.KERNELS for case in rows(kernel)],
    "activation": [case for kernel in (*activation.GATED, *activation.PLAIN) for case in rows(kernel)],
    "rope": [rope.case(16, 3, 8, phase, "fp32", 0.0) for phase in ("forward", "backward")],
    "residual": [residual.accumulation(64, "bf16", 0.0)],
    "softmax": [*rows(softmax.KERNEL), softmax.router(16, 8, 2, 0.0)],
    "cross_entropy": [
        cross_entropy.plain_case(16, 32, "forward", "fp32", 0.0),
        cross_entropy.plain_case(16, 32, "backward", "fp32", 0.0),
        cross_entropy.chunked_case(16, 32, 8, "fp32", 0.0),
    ],
    "embedding": [embedding.case(16, 32, 8, phase, "fp32", 0.0) for phase in ("forward", "backward")],
    "permute": [
        permute.case(name, 16, 8, 2, phase, "fp32", 0.0)
        for name in ("moe_permute", "moe_unpermute")
        for phase in ("forward", "backward")
    ],
    "optimizer": [optimizer.case(name, way, [64, 8], 0.0) for name in optimizer.STATES for way in optimizer.WAYS],
    "copy": [
        copy.case(name, 4096, "bf16", out, 0.0)
        for name, out in (("device_copy", None), ("cast_bf16_fp32", "fp32"), ("fill", None), ("quantise_fp8", "fp8"))
    ],
    "reduce": [reduce.case(name, 64, 4, "fp32", 0.0) for name in reduce.WAYS],
    "launch": [launch.case("add_one", 3, "eager", 0.0), launch.case("linear_one", 1, "eager", 0.0)],
}


@pytest.fixture(scope="module")
def cpu() -> Device:
    return open_device("cpu")


def session(path: Path) -> Session:
    return Session(path / "out.parquet", About("a-cpu", "A CPU"))


@pytest.mark.parametrize("name", CASES)
def test_every_class_is_measured(name: str, cpu: Device, tmp_path: Path) -> None:
    outcome = sweep(CASES[name], cpu, session(tmp_path), protocol=QUICK)
    assert (outcome.measured, outcome.skipped, outcome.oom) == (len(CASES[name]), {}, 0)
    for row in read(tmp_path / "out.parquet").rows():
        assert row["status"] == "ok" and row["seconds_min"] <= row["seconds"] <= row["seconds_max"] and row["repeats"] >= 1


@pytest.mark.parametrize("case", CASES["gemm"][:3], ids=lambda case: case.phase)
def test_a_product_has_the_shape_of_its_row(case: KernelCase, cpu: Device) -> None:
    assert make_run(case, cpu)().shape == (case.m, case.n)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", CASES["grouped_gemm"], ids=lambda case: f"{case.name} {case.phase}")
def test_a_grouped_product_has_the_shape_of_its_row(case: KernelCase, cpu: Device) -> None:
    out: Any = make_run(case, cpu)()
    shapes = {tuple(part.shape) for part in out} if isinstance(out, list) else {tuple(out.shape)}
    together = (case.batch, case.m, case.n) if case.phase == "wgrad" else (case.batch * case.m, case.n)  # type: ignore[operator]
    assert shapes == ({(case.m, case.n)} if isinstance(out, list) else {together})


def test_chunked_loss_is_the_loss(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNK", 5)
    torch.manual_seed(0)
    hidden, weight = torch.randn(16, 8, requires_grad=True), torch.randn(32, 8, requires_grad=True)
    target = torch.randint(0, 32, (16,))
    expected = torch.nn.functional.cross_entropy(hidden @ weight.t(), target)
    by_hidden, by_weight = torch.autograd.grad(expected, (hidden, weight))
    found = cross_entropy.chunked_loss(torch, hidden.detach(), weight.detach(), target)
    for ours, theirs in zip(found, (expected, by_hidden, by_weight), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_permuting_there_and_back_is_a_weighted_sum(cpu: Device) -> None:
    there: Any = make_run(permute.case("moe_permute", 16, 8, 2, "forward", "fp32", 0.0), cpu)()
    back: Any = make_run(permute.case("moe_unpermute", 16, 8, 2, "forward", "fp32", 0.0), cpu)()
    assert there.shape == (32, 8) and back.shape == (16, 8)


def test_a_backward_run_gives_gradients_of_every_input(cpu: Device) -> None:
    bench = Bench(cpu)
    x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    run = bench.backward(lambda a, b: a * b, x, w)
    first, second = run(), run()
    assert len(first) == 2 and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))  # type: ignore[arg-type,call-overload]
    torch.testing.assert_close(first[0] / w, first[1] / x)  # type: ignore[index]


def case_of(make: Callable[[Bench], Run], n: int) -> KernelCase:
    return KernelCase("elementwise", "made_up", "forward", make, "fp32", n=n)


def test_what_goes_wrong_is_written_down(cpu: Device, tmp_path: Path) -> None:
    def full(bench: Bench) -> Run:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def missing(bench: Bench) -> Run:
        raise Unavailable("such a kernel")

    def broken(bench: Bench) -> Run:
        raise RuntimeError("a shape of 3\nand more")

    cases = [case_of(full, 1), case_of(missing, 2), case_of(missing, 3), case_of(broken, 4), *CASES["launch"][:1]]
    outcome = sweep(cases, cpu, session(tmp_path), protocol=QUICK)
    assert (outcome.measured, outcome.oom) == (1, 1)
    assert outcome.skipped == {"such a kernel": 2, "elementwise made_up, eager: a shape of 3": 1}
    lost = read(tmp_path / "out.parquet").where(status="oom").rows()
    assert [(row["n"], row["seconds"]) for row in lost] == [(1, None)]


def test_what_a_host_cannot_hold_is_not_tried(cpu: Device, tmp_path: Path) -> None:
    tried: list[int] = []
    case = replace(case_of(lambda bench: tried.append(1) or (lambda: None), 1), bytes=1e15)
    outcome = sweep([case], cpu, session(tmp_path), protocol=QUICK)
    assert not tried and sum(outcome.skipped.values()) == 1


def test_a_device_that_is_gone_ends_the_sweep_and_keeps_its_rows(tmp_path: Path) -> None:
    class Gone(Device):
        """A CPU that becomes a lost GPU."""

        lost = False

        @property
        def cuda(self) -> bool:
            return self.lost

        @cuda.setter
        def cuda(self, value: bool) -> None: ...

        def synchronize(self) -> None:
            if self.lost:
                raise RuntimeError("an illegal memory access was encountered")

        def forget(self) -> None: ...

    device = Gone(torch, "cpu")

    def crash(bench: Bench) -> Run:
        device.lost = True
        raise RuntimeError("an illegal memory access was encountered")

    rows = session(tmp_path)
    sweep([CASES["launch"][0]], device, rows, protocol=QUICK)
    with pytest.raises(EngineError, match="illegal"):
        sweep([case_of(crash, 1), CASES["launch"][1]], device, rows, protocol=QUICK)
    assert len(read(tmp_path / "out.parquet")) == 1


def test_resumed_and_stopped(cpu: Device, tmp_path: Path) -> None:
    cases = CASES["norm"]
    asked: list[float] = []

    def second(share: float) -> bool:
        asked.append(share)
        return len(asked) > 2

    first = sweep(cases, cpu, session(tmp_path), protocol=QUICK, report=second)
    assert (first.measured, first.left, first.stopped) == (2, len(cases) - 2, True)
    again = Session(tmp_path / "out.parquet", About("a-cpu", "A CPU"), resume=True)
    rest = sweep(cases, cpu, again, protocol=QUICK)
    assert (rest.measured, rest.resumed) == (len(cases) - 2, 2) and len(read(tmp_path / "out.parquet")) == len(cases)


def test_kernels_in_turn_say_what_lay_between(cpu: Device, tmp_path: Path) -> None:
    """All that a turn moves lies between two repetitions, but for the kernel itself; a turn is as many as move the bytes asked."""
    cases = CASES["norm"][:4]
    moved = [float(case.bytes or 0.0) for case in cases]
    sweep(cases, cpu, session(tmp_path), protocol=QUICK, between=sum(moved[:2]))
    found = {row["bytes"]: row["between_bytes"] for row in read(tmp_path / "out.parquet").rows()}
    turns = (moved[:2], moved[2:])
    assert found == {size: pytest.approx(sum(turn) - size) for turn in turns for size in turn}


def test_the_budget_ends_it(cpu: Device, tmp_path: Path) -> None:
    outcome = sweep(CASES["norm"], cpu, session(tmp_path), protocol=QUICK, budget=0.0)
    assert outcome.measured == 0 and outcome.left == len(CASES["norm"]) and not outcome.stopped


def test_the_verb_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from windtunnel.cli import main

    out = str(tmp_path / "out.parquet")
    line = ["profile", "sweep", "--classes", "launch", "--models", "gpt-1.7b", "--device", "cpu", "-o", out]
    assert main(line) == 0 and "4 rows" in capsys.readouterr().out
    assert main(line) == 2 and "--resume" in capsys.readouterr().err
    assert main([*line, "--resume"]) == 0 and "4 from before" in capsys.readouterr().out
    about = read(out).about
    assert about.gpu.startswith("cpu-") and about.libraries["torch"] == torch.__version__
    assert about.datasheet["peak.fp32"] > 0 and about.datasheet["memory_bandwidth"] > 0
    assert main(["profile", "sweep", "--device", "cuda", "-o", out]) == 2 or torch.cuda.is_available()


def test_settings_hold_while_a_case_runs_and_no_longer(cpu: Device) -> None:
    config = torch._functorch.config
    before = (config.donated_buffer, torch.get_float32_matmul_precision(), torch.backends.cuda.math_sdp_enabled())
    flash = next(case for case in CASES["attention"] if case.name == "sdpa_flash")
    with replace(CASES["norm"][0], mode="compile").holding(torch):
        assert config.donated_buffer is False
    with replace(CASES["gemm"][-1], dtype="tf32").holding(torch):
        assert torch.get_float32_matmul_precision() == "high"
    with flash.holding(torch):
        assert not torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
    assert before == (config.donated_buffer, torch.get_float32_matmul_precision(), torch.backends.cuda.math_sdp_enabled())
