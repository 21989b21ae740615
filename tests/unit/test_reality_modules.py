"""Are modules of a dataset and published layers assembled from kernels as the rows say?"""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.compute import estimate
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.isolated import run_alone
from windtunnel.reality.rows.measurements import LAYERS
from windtunnel.reality.score.layers import layer_scores, layer_seconds
from windtunnel.reality.score.module_rows import job_of, predict_module, score_module_rows
from windtunnel.reality.validate import validate
from windtunnel.records import About, Dataset, dataset, write_shape
from windtunnel.spec import Job, load_gpu, load_job
from windtunnel.workload import Kind, Phase, build
from windtunnel.workload.ops import Op, OpTable

H100 = load_gpu("h100-sxm-80gb")
SIZES: dict[str, int | str] = {"hidden": 4096, "seq": 4096, "micro_batch": 2, "tp": 1}
CORE: dict[str, int | str] = {"heads": 32, "kv_heads": 8, "head_dim": 128, "attention": "flash"}
MLP: dict[str, int | str] = {"ffn": 14336, "gated": "yes"}
LAYER = SIZES | CORE | MLP | {"norm": "rmsnorm", "recompute": "none"}


def row(op: str, phase: str, shape: dict[str, int | str], **more: Any) -> dict[str, Any]:
    level = "layer" if op == "layer" else "submodule"
    return {
        "level": level,
        "op": op,
        "name": op,
        "phase": phase,
        "dtype": "bf16",
        "mode": "eager",
        "library": "windtunnel",
        "shape": write_shape(shape),
        "seconds": 1e-2,
        "host_seconds": 1e-3,
        "status": "ok",
        "source": "by hand",
    } | more


def data(*rows: dict[str, Any]) -> Dataset:
    return dataset(About(gpu=H100.id, source="by hand"), rows)


def seconds(made: dict[str, Any]) -> float:
    (full,) = data(made).rows()
    found = predict_module(full, H100)
    assert isinstance(found, tuple), found
    return found[0]


def job(made: dict[str, Any]) -> Job:
    found = job_of(data(made).rows()[0], H100)
    assert isinstance(found, tuple), found
    return found[0]


def test_an_mlp_is_its_products_and_activation() -> None:
    made = row("mlp", "forward", SIZES | MLP)
    runtime = job(made).runtime
    tokens = 8192

    def product(n: int, k: int) -> Op:
        moved = 2.0 * (tokens * k + k * n + tokens * n)
        return Op("", Kind.GEMM, Phase.FORWARD, m=tokens, n=n, k=k, flops=2.0 * tokens * n * k, bytes=moved)

    act = Op("", Kind.ELEMENTWISE, Phase.FORWARD, bytes=2.0 * 5 * tokens * 14336, launches=2)
    kernels = estimate(OpTable.of([product(28672, 4096), act, product(4096, 14336)]), H100, runtime).seconds.sum()
    # the first kernel starts once the host has entered the module and launched it; the rest is launched meanwhile
    assert seconds(made) == pytest.approx(kernels + runtime.host.layer + runtime.host.launch, rel=1e-9)


def test_the_host_bounds_a_small_module() -> None:
    small = row("mlp", "forward", {"hidden": 64, "seq": 16, "micro_batch": 1, "tp": 1, "ffn": 128, "gated": "yes"})
    host = job(small).runtime.host
    assert seconds(small) > host.layer + 3 * host.launch
    on_host = seconds(small | {"host_seconds": None})
    assert on_host < host.launch + seconds(small) - host.layer


def test_a_stack_takes_as_often_a_layer() -> None:
    assert seconds(row("layer", "forward", LAYER | {"layers": 4})) == pytest.approx(4 * seconds(row("layer", "forward", LAYER)))


def test_full_recomputation_runs_forward_again() -> None:
    forward, backward = (seconds(row("layer", phase, LAYER)) for phase in ("forward", "backward"))
    again = seconds(row("layer", "backward", LAYER | {"recompute": "full"}))
    assert again == pytest.approx(forward + backward, rel=0.01)


def test_a_slice_is_less_work_and_has_no_calls() -> None:
    whole, sliced = (seconds(row("layer", "forward", LAYER | {"tp": tp})) for tp in (1, 8))
    assert whole / 8 < sliced < whole / 3  # norms and residuals are not cut


@pytest.mark.parametrize(
    "op, shape", [("attention", CORE), ("norm", {"norm": "rmsnorm"}), ("embedding", {"vocab": 32000}), ("head", {"vocab": 32000})]
)
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_every_module_is_scored(op: str, shape: dict[str, int | str], phase: str) -> None:
    (score,) = score_module_rows(data(row(op, phase, SIZES | shape)), H100)
    assert score.skipped is None and score.predicted is not None and score.predicted > 1.0
    assert score.family == f"h100-sxm-80gb submodule {op} {phase}"
    assert score.measured == pytest.approx(1e4)


@pytest.mark.parametrize(
    "made, reason",
    [
        (row("layer", "optimizer", LAYER), "its parts are rows"),
        (row("layer", "forward", LAYER, status="open"), "status open"),
        (row("moe", "forward", SIZES), "moe"),
        (row("layer", "forward", {"hidden": 64}), "without seq, micro_batch"),
        (row("layer", "forward", LAYER | {"heads": 30}), "heads"),
        (row("mlp", "forward", SIZES | MLP | {"flavour": "odd"}), "flavour=odd"),
    ],
)
def test_what_cannot_be_assembled_is_skipped_with_its_reason(made: dict[str, Any], reason: str) -> None:
    (score,) = score_module_rows(data(made), H100)
    assert score.skipped is not None and reason in score.skipped


def test_own_kernels_come_before_the_curves_and_modules_never_answer_for_themselves() -> None:
    made = row("mlp", "forward", SIZES | MLP)
    kernel = {
        "level": "kernel",
        "op": "gemm",
        "name": "up",
        "phase": "forward",
        "dtype": "bf16",
        "mode": "eager",
        "m": 8192,
        "n": 28672,
        "k": 4096,
        "seconds": 50e-3,
        "status": "ok",
        "source": "by hand",
    }
    plain = score_module_rows(data(made, kernel), H100)[0]
    own = score_module_rows(data(made, kernel), H100, from_kernels=True)[0]
    assert plain.predicted is not None and own.predicted is not None
    assert plain.predicted == score_module_rows(data(made), H100)[0].predicted
    assert own.predicted > 50e3 > plain.predicted
    assert score_module_rows(data(made), H100, from_kernels=True)[0].predicted == plain.predicted


def test_rows_alone_take_the_longer_of_host_and_device() -> None:
    workload = build(load_job("megatron-22b-8", ["plan.sequence_parallel=false"]))
    costs = price(workload)
    rows = workload.blocks[1].forward
    found = run_alone(workload, costs, rows, calls=False)
    assert found.seconds == pytest.approx(found.device + float(costs.host[rows.start]))
    with_calls = run_alone(workload, costs, rows)
    part = slice(rows.start, rows.stop)
    assert with_calls.seconds == pytest.approx(costs.seconds[part].sum() + costs.host[rows.start], rel=0.02)
    slow = run_alone(workload, costs, rows, module_host=1.0, calls=False)
    assert slow.seconds == pytest.approx(1.0 + found.seconds, rel=1e-6)
    with pytest.raises(ValueError):
        run_alone(workload, costs, [])


def test_published_layers_are_within_their_bound() -> None:
    scores = layer_scores(LAYERS.read_text(encoding="utf-8"))
    errors = [score.error_pct for score in scores]
    assert len(errors) == 15 and all(error is not None and abs(error) <= 6.0 for error in errors)
    report = validate([LAYERS])
    assert {family.family for family in report.families} == {"A100-layer-Korthikanti"}


def test_a_layer_table_s_bad_lines_are_skipped() -> None:
    head = "id,family,job,set,pass,seconds,source,verified\n"
    lines = [
        "a,f,megatron-22b-8,,forward,-1,s,memory",
        "b,f,megatron-22b-8,,sideways,1,s,memory",
        "c,f,no-such-job,,forward,1,s,memory",
        "d,f,megatron-22b-8,plan.tp=7,forward,1,s,memory",
        "e,f",
        "f,f,megatron-22b-8,,forward,0.007,s,source seen",
    ]
    scores = layer_scores(head + "\n".join(lines) + "\n")
    assert [score.skipped is not None for score in scores] == [True] * 5 + [False]
    assert scores[-1].source_seen


def test_total_is_both_passes() -> None:
    forward, backward, total = (layer_seconds("megatron-22b-8", [], which)[0] for which in ("forward", "backward", "total"))
    assert total == pytest.approx(forward + backward)
