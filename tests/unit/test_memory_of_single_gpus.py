"""Memory of PyTorch's eager modules and of what frameworks do to save it, by hand: torchtune's recipes on one GPU, adapters under
full sharding, and the tensors that stand for gradients in Megatron-Core."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.memory import memory_of
from windtunnel.memory.buffers import buffers_of
from windtunnel.memory.habits import habits
from windtunnel.memory.lifetimes import TensorContent, lifetimes
from windtunnel.memory.result import StageMemory
from windtunnel.memory.walk import block_needs
from windtunnel.spec import Job, load_runtime
from windtunnel.spec.model import Lora
from windtunnel.workload import build

LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "position": "rope", "tied_embeddings": False, "linear_bias": False}
TUNE = load_runtime("torchtune")
TOKENS, HIDDEN, FFN, HEADS, GROUPS, VOCAB, LAYERS = 1024, 1024, 4096, 16, 4, 50000, 4


def tuned(**fields: Any) -> Job:
    """A small Llama on one GPU under torchtune's recipe, one micro batch a step."""
    runtime = load_runtime("torchtune", **{name: fields.pop(name) for name in ("launch",) if name in fields})
    own = ("host", "data", "startup", "cp_kind")
    given = {name: getattr(runtime, name) for name in type(runtime).model_fields if name not in own}
    sizes = {"kv_heads": GROUPS, "vocab": VOCAB, "sharding": "none", "global_batch": 1}
    return make_job(**(LLAMA | sizes | given | fields))


def fullest(job: Job) -> StageMemory:
    return memory_of(job, build(job))[0]


def layer_bytes(job: Job) -> float:
    return block_needs(build(job))[1].saved


PARAMETERS = LAYERS * (HIDDEN * (HIDDEN + 2 * 256) + HIDDEN * HIDDEN + 3 * HIDDEN * FFN + 2 * HIDDEN) + HIDDEN + 2 * VOCAB * HIDDEN


@pytest.mark.parametrize(
    ("launch", "norms", "activation"),
    [
        # an fp32 copy of the input and the result in 16 bits for each of two norms; the gate's result beside gate, up and product
        ("eager", 2 * (4 + 2) * HIDDEN, 4 * 2 * FFN),
        ("compile", 2 * 2 * HIDDEN, 3 * 2 * FFN),
    ],
)
def test_a_layer_of_torchtune_keeps_what_its_modules_save(launch: str, norms: int, activation: int) -> None:
    inputs = 2 * 2 * HIDDEN  # of both first products
    attention = 4 * 2 * HIDDEN + 4 * HEADS  # query, repeated key and value, context; log-sums
    assert layer_bytes(tuned(launch=launch)) == TOKENS * (norms + inputs + attention + activation)


def test_keys_and_values_that_are_not_repeated_are_kept_as_they_are() -> None:
    saved = layer_bytes(tuned()) - layer_bytes(tuned(repeats_keys=False))
    assert saved == TOKENS * 2 * 2 * (HIDDEN - HIDDEN * GROUPS // HEADS)


def test_a_norm_whose_gain_is_frozen_keeps_its_fp32_input_alone() -> None:
    trained, frozen = (build(tuned(lora=lora)) for lora in (None, Lora(rank=4, targets=("linear_qkv",))))
    kept = [block_needs(workload)[2].saved for workload in (trained, frozen)]
    logits = TOKENS * VOCAB * (2 + 4)
    assert kept == [TOKENS * HIDDEN * (4 + 2 + 2) + logits, TOKENS * HIDDEN * 4 + logits]  # norm, and the product's input


def test_a_step_of_one_micro_batch_has_no_gradients_while_its_activations_are_at_their_most() -> None:
    alone, two = fullest(tuned(seq=4096)), fullest(tuned(seq=4096, global_batch=2))
    assert two.gradients == pytest.approx(2 * PARAMETERS)
    assert alone.gradients == 0.0
    assert alone.allocated == pytest.approx(two.allocated - 2 * PARAMETERS)


def test_a_short_sequence_peaks_where_all_gradients_are_there() -> None:
    short = fullest(tuned(seq=8))
    assert short.gradients == pytest.approx(2 * PARAMETERS)
    assert short.allocated == pytest.approx(8 * PARAMETERS, rel=0.02)  # weights, gradients and two moments in 16 bits


def test_a_step_over_several_ranks_has_room_for_its_gradients_throughout() -> None:
    assert fullest(tuned(seq=4096, dp=2, global_batch=2)).gradients == pytest.approx(2 * PARAMETERS)


def test_a_loss_in_parts_casts_one_of_them_at_a_time() -> None:
    logits = TOKENS * VOCAB
    whole, parts = (fullest(tuned(launch="compile", loss_parts=n)) for n in (1, 8))
    assert whole.logits == logits * (2 + 4)
    assert parts.logits == logits * 2
    shared = 2 * 2 * VOCAB * HIDDEN  # the output matrix's gradient of one part, and that of those before
    assert parts.workspace - whole.workspace == pytest.approx(logits * 2 / 8 + shared - logits * 2)


def test_an_eager_loss_in_parts_keeps_the_logarithms_of_all() -> None:
    parts = [fullest(tuned(launch=launch, loss_parts=8)) for launch in ("eager", "compile")]
    assert parts[0].logits - parts[1].logits == TOKENS * VOCAB * 4
    assert parts[0].workspace - parts[1].workspace == pytest.approx(TOKENS * VOCAB * (4 + 4) / 8)


def test_an_update_inside_backward_leaves_the_gradient_of_one_block() -> None:
    late, at_once = (fullest(tuned(seq=8, optimizer_in_backward=on)) for on in (False, True))
    layer = (PARAMETERS - HIDDEN - 2 * VOCAB * HIDDEN) / LAYERS
    assert late.gradients == pytest.approx(2 * PARAMETERS)
    assert at_once.gradients <= 2 * max(layer, VOCAB * HIDDEN + HIDDEN)
    assert at_once.optimizer == late.optimizer


def test_a_tied_matrix_waits_for_the_gradient_of_the_embedding() -> None:
    tied = fullest(tuned(seq=8, optimizer_in_backward=True, tied_embeddings=True))
    assert tied.gradients == pytest.approx(2 * 2 * VOCAB * HIDDEN)  # that of the head, and that of the embedding beside it


def test_the_replay_has_no_gradient_left_after_an_update_inside_backward() -> None:
    events = lifetimes(build(tuned(seq=8, optimizer_in_backward=True)), 0)
    sizes = [event.size for event in events if event.content is TensorContent.GRADIENTS]
    assert sizes
    assert sum(sizes) == 0.0
    held = level = 0.0
    for size in sizes:
        level += size
        held = max(held, level)
    assert held == 2 * (VOCAB * HIDDEN + HIDDEN)  # one block at a time


def test_an_update_inside_backward_is_refused_over_several_micro_batches() -> None:
    with pytest.raises(PlanError, match=r"optimizer_in_backward.*one micro batch"):
        tuned(global_batch=2, optimizer_in_backward=True)


def test_frozen_blocks_have_no_gradients_under_full_sharding() -> None:
    lora = Lora(rank=4, targets=("linear_qkv",))
    habit = habits(TUNE.framework)
    jobs = [tuned(dp=4, global_batch=4, sharding="fsdp", lora=given) for given in (None, lora)]
    trained, frozen = (buffers_of(build(job), 0, habit, build(job).stage_parameters[0]).layers for job in jobs)
    layer, head = (PARAMETERS - HIDDEN - 2 * VOCAB * HIDDEN) / LAYERS, VOCAB * HIDDEN + HIDDEN
    adapter = 4 * (HIDDEN + HIDDEN + 2 * 256)
    assert trained - frozen == pytest.approx(2 * (2 * layer + head) - 2 * 2 * adapter - 2 * 2 * adapter, rel=1e-3)


@pytest.mark.parametrize(("together", "ranks"), [(False, 1), (True, 4)])
def test_scales_are_sharded_where_the_weights_carry_them(together: bool, ranks: int) -> None:
    lora = Lora(rank=4, targets=("linear_qkv",), base="nf4", scales_sharded=together)
    workload = build(tuned(dp=4, global_batch=4, sharding="fsdp", lora=lora))
    packed = LAYERS * (HIDDEN * (HIDDEN + 2 * 256) + HIDDEN * HIDDEN + 3 * HIDDEN * FFN)
    weights = memory_of(workload.job, workload)[0].weights
    scales = packed * 4 / 64
    rest = 2 * (2 * VOCAB * HIDDEN + (2 * LAYERS + 1) * HIDDEN) + 2 * workload.stage_parameters[0]
    assert weights == pytest.approx((packed / 2 + rest) / 4 + scales / ranks, rel=1e-3)


@pytest.mark.parametrize("tp", [1, 2])
def test_transformer_engine_keeps_a_placeholder_of_each_shape(tp: int) -> None:
    plain, kept = (
        fullest(make_job(**LLAMA, tp=tp, fused_wgrad=True, kv_heads=GROUPS, wgrad_placeholders=way))
        for way in ("passing", "linear")
    )
    shapes = HIDDEN * (HIDDEN + 2 * 256) + HIDDEN * HIDDEN + 2 * HIDDEN * FFN + HIDDEN * FFN
    assert kept.buffers - plain.buffers == 2 * shapes / tp


def test_layers_share_placeholders() -> None:
    few, many = (fullest(make_job(**LLAMA, layers=n, fused_wgrad=True, wgrad_placeholders="linear")) for n in (2, 8))
    assert few.buffers == many.buffers > 0.0


@pytest.mark.parametrize(("way", "kept"), [("linear", 0), ("all", 2 * (2 * HIDDEN * 256 + HIDDEN * 256))])
def test_experts_placeholders_came_later(way: str, kept: int) -> None:
    mixture = {"experts": 8, "top_k": 2, "expert_ffn": 256, "layer_pattern": "E"}
    dense = fullest(make_job(**LLAMA, **mixture, fused_wgrad=True, wgrad_placeholders="linear")).buffers
    assert fullest(make_job(**LLAMA, **mixture, fused_wgrad=True, wgrad_placeholders=way)).buffers - dense == kept


@pytest.mark.parametrize(("seq", "more"), [(256, True), (4096, False)])
def test_the_output_layers_placeholder_is_beside_the_gradient_of_the_logits(seq: int, more: bool) -> None:
    fields = LLAMA | {"seq": seq, "loss_in_place": True, "fused_wgrad": True, "fused_cross_entropy": False, "global_batch": 1}
    none, passing = (fullest(make_job(**fields, wgrad_placeholders=way)) for way in ("none", "passing"))
    logits, matrix = 51200 * seq, 51200 * HIDDEN
    # 6 bytes a logit in the loss, or 2 and the matrix in 16 bits after it
    assert passing.allocated - none.allocated == pytest.approx(max(0, 2 * logits + 2 * matrix - 6 * logits) if more else 0, abs=1)


def test_the_output_layers_placeholder_stays_since_core_0_14() -> None:
    fields = LLAMA | {"seq": 256, "loss_in_place": True, "fused_wgrad": True, "fused_cross_entropy": False, "global_batch": 1}
    ways = {"wgrad_placeholders": "linear", "vocab": 51200}
    passing, kept = (fullest(make_job(**fields, **ways, keeps_output_placeholder=stays)) for stays in (False, True))
    assert kept.buffers - passing.buffers == 2 * 51200 * HIDDEN
    assert kept.workspace < passing.workspace  # it is not beside the loss as well
    assert load_runtime("megatron-core", version="0.14").keeps_output_placeholder
    assert not load_runtime("megatron-core", version="0.13").keeps_output_placeholder


def test_without_fused_gradients_nothing_stands_for_them() -> None:
    ways = [fullest(make_job(**LLAMA, fused_wgrad=False, wgrad_placeholders=way)).allocated for way in ("none", "all")]
    assert ways[0] == ways[1]
