"""Optimizers' state, kernels and calls, against counts by hand."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import PlanError
from windtunnel.predict import predict
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import Axis, Comm, Kind, Workload, build
from windtunnel.workload.optimizers import Held, Matrix, ParameterUpdate
from windtunnel.workload.optimizers.muon import slowest

STAGE = 1
"""A stage of twelve layers without embedding or head."""

LAYERS, H, FFN, TP = 12, 12288, 49152, 8
MATRICES = 4 * H * H + 2 * H * FFN
"""Elements of a layer's four weights."""
SMALL = LAYERS * (2 * 2 * H + 3 * H // TP + H + FFN // TP + H)
"""Norms and biases of a stage on one GPU: two norms of 2 h, biases of qkv and up cut, of both outputs whole."""


def job(*sets: str, dp: int = 1) -> Job:
    """GPT 175B, tp 8, pp 8."""
    sizes = [f"cluster.gpus={64 * dp}", f"plan.dp={dp}", f"plan.global_batch={8 * dp}"]
    return check(load_job("megascale-175b-12288", [*sizes, *sets]))


def update(workload: Workload) -> list[int]:
    return list(workload.optimizer[STAGE])


def flops(workload: Workload) -> float:
    return float(sum(workload.ops.flops[row] for row in update(workload)))


def calls(workload: Workload) -> dict[tuple[Comm, Axis], float]:
    ops = workload.ops
    rows = [r for r in update(workload) if ops.kind[r] == Kind.COMM]
    return {(Comm(int(ops.comm[r])), Axis(int(ops.axis[r]))): float(ops.bytes[r]) for r in rows}


def moved(workload: Workload, *names: str) -> float:
    return sum(float(workload.ops.bytes[r]) for r in update(workload) if workload.ops.names[r] in names)


@pytest.mark.parametrize(
    ("sets", "of_weights", "of_rest"),
    [
        (("optimizer=adam",), 8.0, 8.0),
        (("optimizer=lamb",), 8.0, 8.0),
        (("optimizer=sgd",), 4.0, 4.0),
        (("optimizer=muon",), 4.0, 8.0),
        (("exp_avg_dtype=bf16", "exp_avg_sq_dtype=fp8"), 3.0, 3.0),
        (("exp_avg_dtype=int8", "exp_avg_sq_dtype=int8"), 2.03125, 2.03125),
        (("optimizer=muon", "exp_avg_dtype=bf16"), 2.0, 6.0),
    ],
)
@pytest.mark.parametrize("dp", [1, 4])
def test_bytes_of_state(sets: tuple[str, ...], of_weights: float, of_rest: float, dp: int) -> None:
    """Moments, beside a master copy of 4 bytes, of a stage whose state is cut over dp ranks (zero1)."""
    made = job(*(f"runtime.{text}" for text in sets), dp=dp)
    expected = (LAYERS * MATRICES / TP * of_weights + SMALL * of_rest) / dp
    assert build(made).stage_states[STAGE] == pytest.approx(expected, rel=1e-12)
    master = 4.0 * (LAYERS * MATRICES / TP + SMALL) / dp
    assert predict(made).memory[STAGE].optimizer == pytest.approx(expected + master, rel=1e-12)


def test_adafactor_keeps_rows_and_columns() -> None:
    """Of a weight of r x c pieces r + c numbers: qkv 4608 x 12288, out 12288 x 1536, up 6144 x 12288, down 12288 x 6144."""
    made = build(job("runtime.optimizer=adafactor", "plan.sharding=none"))
    factors = LAYERS * ((4608 + H) + (H + 1536) + 2 * (FFN // TP + H))
    assert made.stage_states[STAGE] == pytest.approx(4.0 * (factors + SMALL), rel=1e-12)
    assert made.stage_states[STAGE] < 1e-3 * build(job()).stage_states[STAGE]


def newton_schulz(short: float, long: float) -> float:
    return 5 * (2 * short * short * long + 2 * short**3 + 2 * short * short * long)


def test_muon_multiplies_whole_weights() -> None:
    expected = LAYERS * (newton_schulz(H, 3 * H) + newton_schulz(H, H) + 2 * newton_schulz(H, FFN))
    workload = build(job("runtime.optimizer=muon", "plan.sharding=none"))
    assert flops(workload) == pytest.approx(expected, rel=1e-12)
    # every rank of tp gathers its layers' weights in 16 bits; nothing crosses replicas
    assert set(calls(workload)) == {(Comm.ALL_GATHER, Axis.TP)}
    gathered = sum(float(workload.ops.bytes[r]) for r in update(workload) if workload.ops.kind[r] == Kind.COMM)
    assert gathered == pytest.approx(2.0 * LAYERS * MATRICES)


def test_muon_over_tp_cuts_the_long_products() -> None:
    whole, cut, pieces = (
        build(job("runtime.optimizer=muon", f"runtime.muon_tp={how}")) for how in ("duplicated", "distributed", "blockwise")
    )
    long = LAYERS * 5 * 4 * H * H * (3 * H + H + 2 * FFN)
    square = LAYERS * 5 * 2 * H**3 * 4
    assert flops(whole) == pytest.approx(long + square)
    assert flops(cut) == pytest.approx(long / TP + square)
    reduced = sum(float(cut.ops.bytes[r]) for r in update(cut) if cut.ops.comm[r] == Comm.ALL_REDUCE)
    assert reduced == pytest.approx(5 * 4.0 * H * H * LAYERS * 4)
    expected = LAYERS * (newton_schulz(4608, H) + newton_schulz(1536, H) + 2 * newton_schulz(FFN / TP, H))
    assert flops(pieces) == pytest.approx(expected) and not calls(pieces)


def test_muons_weights_have_homes_where_state_is_sharded() -> None:
    """48 weights over four ranks: twelve each, evenly by work; momentum goes home and the result comes back."""
    one, four = (build(job("runtime.optimizer=muon", f"plan.sharding={kind}", dp=4)) for kind in ("none", "zero1"))
    assert flops(four) == pytest.approx(flops(one) / 4, rel=0.05)
    ops = four.ops
    exchanged = [float(ops.bytes[r]) for r in update(four) if ops.comm[r] == Comm.ALL_TO_ALL]
    assert len(exchanged) == 2 and exchanged[0] == exchanged[1] >= 2.0 * LAYERS * MATRICES / TP / 4


def test_the_rank_with_most_work_is_waited_for() -> None:
    """Three weights over two ranks, one twice as wide: it is alone on one rank, the two others on the other (2 s s (2 l + s))."""
    made = job("runtime.optimizer=muon", dp=2)
    wide, narrow = Matrix(4, 16), Matrix(4, 8)
    found = slowest(ParameterUpdate(made, Held(128.0, 0.0, 3, {wide: 1, narrow: 2}), 64.0, 4.0, 4.0))
    assert dict(found) == {narrow: 2}  # 2 x 16 x 20 against 16 x 36


def test_lamb_takes_norms_of_every_tensor() -> None:
    workload = build(job("runtime.optimizer=lamb", dp=4))
    n = workload.stage_parameters[STAGE] / 4
    # gradient, weight, both moments twice, the step; weight and step for norms; weight twice and the step
    assert moved(workload, "lamb step", "lamb norms", "lamb update") == pytest.approx(n * ((4 + 4 + 16 + 4) + (4 + 4) + (8 + 4)))
    tensors = sum(len(workload.blocks[b].tensors.weights) * times for chunk in workload.stages[STAGE] for b, times in chunk.blocks)
    assert calls(workload) == {(Comm.ALL_REDUCE, Axis.SHARD): 8.0 * tensors, (Comm.ALL_REDUCE, Axis.TP): 8.0 * tensors}
    adam = build(job(dp=4))
    assert moved(adam, "adam update") == pytest.approx(n * 28.0) and not calls(adam)


def test_smaller_moments_move_fewer_bytes() -> None:
    small = build(job("runtime.exp_avg_dtype=bf16", "runtime.exp_avg_sq_dtype=bf16"))
    assert moved(small, "adam update") == pytest.approx(small.stage_parameters[STAGE] * (28.0 - 8.0))


@pytest.mark.parametrize("name", ["lamb", "muon", "adafactor"])
@pytest.mark.parametrize("sharding", ["none", "zero1", "fsdp"])
def test_steps_add_up_under_every_optimizer(name: str, sharding: str) -> None:
    if name == "adafactor" and sharding == "zero1":
        return
    p = predict(job(f"runtime.optimizer={name}", f"plan.sharding={sharding}", dp=2))
    for stage in p.by_stage:
        assert sum(stage.values()) == pytest.approx(p.step_time_s)


def test_experts_have_homes_of_their_own() -> None:
    made = check(load_job("mixtral-8x7b-64xh100", ["runtime.optimizer=muon"]))
    workload = build(made)
    held = [m for m, _ in workload.blocks[1].matrices]
    assert {m.expert for m in held} == {True, False}
    assert (
        predict(made).step_time_s
        > predict(made.model_copy(update={"runtime": made.runtime.model_copy(update={"optimizer": "adam"})})).step_time_s
    )


def test_state_by_shape_stays_on_the_gpu() -> None:
    with pytest.raises(PlanError, match=r"plan\.offload\.optimizer"):
        job("runtime.optimizer=muon", "plan.offload.optimizer=host", "plan.offload.optimizer_fraction=0.5")


@pytest.mark.parametrize(
    ("sets", "hint"),
    [
        (("optimizer=adafactor",), "plan.sharding"),
        (("muon_tp=blockwise",), "runtime.muon_tp"),
        (("optimizer=sgd", "exp_avg_sq_dtype=bf16"), "moment"),
        (("optimizer=adafactor", "exp_avg_dtype=bf16"), "moment"),
    ],
)
def test_what_has_no_effect_is_refused(sets: tuple[str, ...], hint: str) -> None:
    with pytest.raises(PlanError, match=hint):
        job(*(f"runtime.{text}" for text in sets))


def test_adafactor_moves_the_gradient_the_weight_and_its_step() -> None:
    """Means: the gradient read. Update: gradient read, step written in fp32; step read; weight read; step read, weight read and
    written: 3 x 4 bytes of step, and with fp32 masters of 4 bytes and a gradient of 4: 4 + 4 + 4 + 4 + 4 + 8."""
    made = build(job("runtime.optimizer=adafactor", "plan.sharding=none"))
    elements = LAYERS * MATRICES / TP + SMALL
    means, whole = moved(made, "adafactor means"), moved(made, "adafactor update")
    grad = means / elements
    assert grad in (pytest.approx(2.0), pytest.approx(4.0))
    assert whole / elements == pytest.approx((grad + 4) + 4 + 4 + (4 + 2 * 4))


def test_adafactor_launches_ten_kernels_for_each_tensor() -> None:
    """Half of them for the means, half for the update. Twelve layers, whose parameters the graph has in 8 pieces each."""
    made = build(job("runtime.optimizer=adafactor", "plan.sharding=none"))
    ops = made.ops
    count = {ops.names[row]: int(ops.launches[row]) for row in update(made) if ops.names[row].startswith("adafactor")}
    assert count == {"adafactor means": 5 * 12 * 8, "adafactor update": 5 * 12 * 8}
