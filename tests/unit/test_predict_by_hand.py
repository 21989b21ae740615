"""Steps that can be added up by hand: what kernels, the host and calls take, and how many bytes a plan moves."""

from __future__ import annotations

import numpy as np
import pytest
from free_parts import even_job

from windtunnel.predict import Prediction, predict
from windtunnel.predict.answer.metrics import executions
from windtunnel.predict.price.costs import price
from windtunnel.spec import Host, Job
from windtunnel.workload import Kind, build

LAYERS, HIDDEN, SEQ, BATCH, VOCAB = 4, 1024, 1024, 8, 51200


def kernel_seconds(job: Job, calls: bool = False) -> float:
    """Sum over all executions of a stage's rows."""
    workload = build(job)
    seconds = executions(workload, 0) * price(workload).seconds
    return float(seconds.sum() if calls else seconds[workload.ops.kind != Kind.COMM].sum())


def bytes_of(p: Prediction, axis: str, op: str) -> float:
    """Bytes of all buffers of `op`; where every replica takes part in a shard's group, both names mean the same ranks."""
    axes = ("dp", "shard") if axis == "data" else (axis,)
    return sum(
        float(str(row["bytes"])) * int(str(row["count"])) for row in p.collectives if row["axis"] in axes and row["op"] == op
    )


@pytest.mark.parametrize("recompute", ["none", "selective", "ops", "full"])
def test_one_gpu_takes_what_its_kernels_take(recompute: str) -> None:
    job = even_job(recompute=recompute)
    assert predict(job).step_time_s == pytest.approx(kernel_seconds(job), rel=1e-12)


def test_a_slow_host_sets_the_pace() -> None:
    launch = 1.0
    job = even_job(host=Host(launch=launch), free_host=False)
    workload = build(job)
    kernels = (executions(workload, 0) * workload.ops.launches).sum()
    p = predict(job)
    assert p.step_time_s == pytest.approx(kernels * launch, rel=1e-4)
    assert p.breakdown["host"] > 0.999 * p.step_time_s


def test_the_host_is_hidden_where_the_device_is_slower() -> None:
    free, cheap = even_job(hidden=4096, ffn=16384), even_job(hidden=4096, ffn=16384, host=Host(launch=1e-9))
    assert predict(cheap).step_time_s == pytest.approx(predict(free).step_time_s, rel=1e-5)


@pytest.mark.parametrize(("field", "times"), [("micro_batch", 2 * BATCH), ("step", 1), ("layer", 2 * BATCH * LAYERS)])
def test_host_costs_count_as_often_as_their_names_say(field: str, times: int) -> None:
    """Of the embedding and the head, which are modules too, a framework may charge as for a layer."""
    p = predict(even_job(host=Host(**{"launch": 0.0, field: 1.0}), free_host=False))
    most = times if field != "layer" else times + 2 * 2 * BATCH
    assert times * (1 - 1e-6) <= p.step_time_s <= most * (1 + 1e-2)


IN_PARTS = 4 * (LAYERS * (2 * 2 + 2) + 2) * HIDDEN
"""Bytes of the fp32 gradients that each rank has for its own tokens: of two norms and two biases a layer, and the last norm."""


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallel_without_overlap_is_the_sum_of_kernels_and_calls(sequence_parallel: bool) -> None:
    job = even_job(tp=4, sequence_parallel=sequence_parallel)
    p = predict(job)
    last = [row for row in p.collectives if row["axis"] == "world" or row["axis"] == "tp" and row["bytes"] == IN_PARTS]
    assert len(last) == 1 + sequence_parallel
    behind = sum(float(str(row["time_us"])) * 1e-6 for row in last)  # the gradients' norm, and the sum of those of norms and biases
    assert p.step_time_s == pytest.approx(kernel_seconds(job, calls=True) + behind, rel=1e-9)
    assert p.breakdown["exposed_tensor_parallel"] == pytest.approx(kernel_seconds(job, calls=True) - kernel_seconds(job), rel=1e-9)


def test_tensor_parallel_moves_four_activations_a_layer() -> None:
    """Shoeybi et al. 2019, section 3: two all-reduces of b s h in each pass of a layer, and one each in embedding and logits."""
    p = predict(even_job(tp=4))
    activation = SEQ * HIDDEN * 2
    tiny = 3 * 4.0 * SEQ * BATCH  # the loss's maximum, target and sum
    assert bytes_of(p, "tp", "all_reduce") == BATCH * (4 * LAYERS + 2) * activation + tiny


def test_sequence_parallelism_gathers_what_each_rank_keeps_a_part_of() -> None:
    """Korthikanti et al. 2022, section 4.2.2: a gather and a scatter in place of each all-reduce, and the inputs of column-parallel
    products again for their weights' gradients. Megatron-Core's output layer is such a product, too; and gradients of norms and
    biases are summed once a step (finalize_model_grads.py)."""
    p = predict(even_job(tp=4, sequence_parallel=True))
    activation = SEQ * HIDDEN * 2
    inputs, gradients = 2 * (2 * LAYERS + 1), 2 * LAYERS + 1  # column-parallel ones, twice; row-parallel ones and the embedding
    assert bytes_of(p, "tp", "all_gather") == BATCH * (inputs + gradients) * activation
    assert bytes_of(p, "tp", "reduce_scatter") == BATCH * (4 * LAYERS + 2) * activation
    tiny = 3 * 4.0 * SEQ * BATCH  # the loss's maximum, target and sum
    assert bytes_of(p, "tp", "all_reduce") == tiny + IN_PARTS


def test_model_flops_are_narayanans() -> None:
    """Narayanan et al. 2021, equation 3 without recomputation: 72 B s l h^2 (1 + s / 6h + V / 12 l h)."""
    p = predict(even_job(vocab=VOCAB))
    flops = 72 * BATCH * SEQ * LAYERS * HIDDEN**2 * (1 + SEQ / (6 * HIDDEN) + VOCAB / (12 * LAYERS * HIDDEN))
    assert p.model_tflops_per_gpu * 1e12 * p.step_time_s == pytest.approx(flops, rel=1e-12)
    assert p.mfu == pytest.approx(flops / p.step_time_s / 312e12, rel=1e-12)


def gpt_parameters() -> float:
    """12 l h^2 + 13 l h + (V + s) h + 2 h: the count of Narayanan et al. 2021, equation 2, with positions and the last norm."""
    return 12 * LAYERS * HIDDEN**2 + 13 * LAYERS * HIDDEN + (VOCAB + 2048) * HIDDEN + 2 * HIDDEN


@pytest.mark.parametrize("overlap", [False, True])
def test_zero1_scatters_gradients_and_gathers_weights_once(overlap: bool) -> None:
    p = predict(even_job(dp=4, sharding="zero1", vocab=VOCAB, overlap_grad_reduce=overlap, overlap_param_gather=overlap))
    assert p.parameters == gpt_parameters()
    assert bytes_of(p, "data", "reduce_scatter") == gpt_parameters() * 4  # fp32 gradients
    assert bytes_of(p, "data", "all_gather") == gpt_parameters() * 2  # 16-bit weights
    assert bytes_of(p, "data", "all_reduce") == 0


def test_without_sharding_gradients_are_reduced_once() -> None:
    p = predict(even_job(dp=4, vocab=VOCAB))
    assert bytes_of(p, "data", "all_reduce") == gpt_parameters() * 4
    assert bytes_of(p, "data", "all_gather") == 0


def test_fsdp_gathers_twice_and_scatters_once_a_micro_batch() -> None:
    """Zhao et al. 2023: parameters for forward, again for backward but for the root unit, and one reduce-scatter of gradients."""
    p = predict(even_job(dp=4, sharding="fsdp", vocab=VOCAB, reduce_dtype="bf16"))
    micro_batches = BATCH // 4
    assert bytes_of(p, "data", "reduce_scatter") == micro_batches * gpt_parameters() * 2
    again = 12 * LAYERS * HIDDEN**2 + 13 * LAYERS * HIDDEN  # without embedding, positions and the last norm
    assert bytes_of(p, "data", "all_gather") == pytest.approx(micro_batches * (gpt_parameters() + again) * 2, rel=1e-12)


def test_hsdp_reduces_a_shard_between_groups() -> None:
    p = predict(even_job(dp=8, sharding="hsdp", shard_group=4, vocab=VOCAB, reduce_dtype="bf16"))
    assert bytes_of(p, "replica", "all_reduce") == gpt_parameters() * 2 / 4


def fsdp_on(bandwidth: float) -> Prediction:
    job = even_job(dp=8, sharding="fsdp", hidden=2048, ffn=8192)
    node = job.cluster.node.model_copy(update={"scale_up": job.cluster.node.scale_up.model_copy(update={"bandwidth": bandwidth})})
    return predict(job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})}))


def test_fsdp_hides_gathers_behind_fast_links_and_shows_them_on_slow_ones() -> None:
    fast, slow = fsdp_on(900e9), fsdp_on(2e9)
    moving = ("exposed_parameter_gather", "exposed_gradient_reduce")
    shown = [sum(p.breakdown.get(name, 0.0) for name in moving) / p.step_time_s for p in (fast, slow)]
    hidden = [p.overlapped.get("parameter_gather", 0.0) / p.step_time_s for p in (fast, slow)]
    assert shown[0] < 0.2 and shown[1] > 0.8
    assert hidden[0] > 0.0
    calls = sum(float(str(row["time_us"])) * 1e-6 * int(str(row["count"])) for row in slow.collectives if row["axis"] == "shard")
    assert slow.step_time_s >= calls / 2  # gathers and scatters are two streams


def test_the_slowest_gpu_stretches_computing_alone() -> None:
    job = even_job(dp=8)
    spread = job.model_copy(update={"cluster": job.cluster.model_copy(update={"slow_nodes": 1.0, "slow_node_factor": 1.5})})
    even, uneven = predict(job), predict(spread)
    kernels = kernel_seconds(job)
    assert uneven.step_time_s - even.step_time_s == pytest.approx(0.5 * kernels, rel=1e-9)
    assert uneven.breakdown["slowest_gpu"] == pytest.approx(0.5 * kernels, rel=1e-9)


def test_a_copied_job_forgets_the_numbers_of_the_old_plan() -> None:
    job = even_job(dp=2)
    assert (job.dp, job.micro_batches) == (2, 4)
    again = job.model_copy(
        update={"plan": job.plan.model_copy(update={"dp": 4}), "cluster": job.cluster.model_copy(update={"gpus": 4})}
    )
    assert (again.dp, again.micro_batches) == (4, 2)
    assert np.isclose(predict(again).tokens_per_s_per_gpu * 4, predict(again).tokens_per_s)
