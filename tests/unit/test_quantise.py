"""Low-precision recipes: kernels, copies, wire and memory of quantised tensors, counted by hand; what GPUs and switches refuse."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from windtunnel.base.errors import PlanError
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.spec import Job, check, load_gpu, load_runtime
from windtunnel.workload import Axis, Comm, Kind, Phase, build
from windtunnel.workload.blocks.quantise import gather_width

H100, B200, A100 = "h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb"
E = 1024.0 * 1024.0  # tokens x hidden of the small job; its MLP is four times as wide
MX, FP4 = 33 / 32, 9 / 16


def low(gpu: str = H100, precision: str = "fp8", switches: dict[str, Any] | None = None, **fields: Any) -> Job:
    job = make_job(attention="flash", tied_embeddings=False, **fields)
    node = job.cluster.node.model_copy(update={"gpu": load_gpu(gpu)})
    runtime = type(job.runtime)(**{**dict(job.runtime), "precision": precision, **(switches or {})})
    return check(job.model_copy(update={"runtime": runtime, "cluster": job.cluster.model_copy(update={"node": node})}))


def rows(job: Job, word: str, block: int = 1) -> dict[str, tuple[float, int]]:
    """Bytes and launches of the rows of a layer whose name has `word`."""
    graph = build(job)
    ops, layer = graph.ops, graph.blocks[block]
    found = [r for r in (*layer.forward, *layer.backward) if word in ops.names[r]]
    return {ops.names[r]: (float(ops.bytes[r]), int(ops.launches[r])) for r in found}


@pytest.mark.parametrize(
    "gpu, precision, recipe, kernels",
    [
        (H100, "fp8", "delayed", {"quantise": (4 * E * (2 + 2), 1)}),
        (B200, "fp8", "delayed", {"quantise": (4 * E * (2 + 1), 1)}),
        (H100, "fp8", "current", {"amax": (4 * E * 2, 2), "quantise": (4 * E * (2 + 2), 1)}),
        (B200, "fp8", "current", {"amax": (4 * E * 2, 2), "quantise": (4 * E * (2 + 1), 1)}),
        (H100, "fp8", "blockwise", {"quantise": (4 * E * (2 + 2 * MX), 1)}),  # 4 bytes of scale for 128 numbers: 1/32 too
        (H100, "fp8", "rowwise", {"quantise": (4 * E * (2 + 2), 1)}),
        (B200, "mxfp8", None, {"quantise": (4 * E * (2 + 2 * MX), 1)}),
        (B200, "nvfp4", None, {"amax": (4 * E * 2, 2), "quantise": (4 * E * (2 + FP4) * 2, 2)}),
        (H100, "bf16", None, {}),
    ],
)
def test_what_quantises_the_input_of_a_linear_layer(
    gpu: str, precision: str, recipe: str | None, kernels: dict[str, tuple[float, int]]
) -> None:
    found = rows(low(gpu, precision, {"fp8_recipe": recipe}), "mlp down ")
    mine = {name.removeprefix("mlp down "): value for name, value in found.items() if "amax" in name or "quantise" in name}
    assert {name: value for name, value in mine.items() if "grad" not in name} == kernels
    grads = {name.removeprefix("grad "): value for name, value in mine.items() if "grad" in name}
    assert grads == {name: (moved / 4, launches) for name, (moved, launches) in kernels.items()}


@pytest.mark.parametrize(
    "gpu, precision, recipe, norm, quantised, turned",
    [
        (H100, "fp8", "delayed", 2 + 1, None, 2 * E),
        (B200, "fp8", "delayed", 2 + 1, None, None),
        (B200, "mxfp8", None, 2 + 2 * MX, None, None),
        (H100, "fp8", "current", 2 + 2, E * (2 + 2), None),
        (B200, "fp8", "current", 2 + 2, E * (2 + 1), None),
        (B200, "nvfp4", None, 2 + 2, E * 2 * (2 + FP4), None),
    ],
)
def test_a_norm_takes_over_what_its_recipe_allows(
    gpu: str, precision: str, recipe: str | None, norm: float, quantised: float | None, turned: float | None
) -> None:
    job = low(gpu, precision, {"fp8_recipe": recipe})
    assert rows(job, "norm1")["norm1"][0] == pytest.approx(norm * E)
    found = rows(job, "qkv ")
    assert found.get("qkv quantise", (None,))[0] == (None if quantised is None else pytest.approx(quantised))
    assert found.get("qkv transpose", (None,))[0] == turned
    assert ("qkv amax" in found) == (precision == "nvfp4"), "current scaling's largest value comes from the norm"
    alone = rows(low(gpu, precision, {"fp8_recipe": recipe, "quantise_fusion": "none"}), "qkv ")
    assert "qkv quantise" in alone and ("qkv amax" in alone) == (precision == "nvfp4" or recipe == "current")


def test_one_kernel_reads_sixteen_bits_once() -> None:
    found = rows(low(B200, "nvfp4", {"fused_hadamard": True}), "mlp down ")
    assert found["mlp down quantise"] == (4 * E * (2 + 2 * FP4), 1) and found["mlp down grad quantise"] == (E * (2 + 2 * FP4), 1)


def test_an_activation_writes_what_the_next_product_reads() -> None:
    def moved(**switches: Any) -> float:
        job = low(B200, "mxfp8", switches)
        found = rows(job, "activation")["activation"][0]
        assert ("mlp down quantise" in rows(job, "mlp down ")) == (switches["quantise_fusion"] == "norm")
        return found

    assert moved(quantise_fusion="norm") == 4 * E * (2 + 2)
    assert moved(quantise_fusion="activation") == 4 * E * (2 + 2 * MX)


def test_a_compiled_backward_pass_keeps_scales() -> None:
    kept = {"fp8_recipe": "current", "save_original_input": True, "quantise_fusion": "activation"}
    assert "qkv again amax" in rows(low(switches=kept), "again")
    compiled = rows(low(switches={**kept, "launch": "compile"}), "again")
    assert set(compiled) == {
        "qkv again quantise",
        "attention out again amax",
        "attention out again quantise",
        "mlp up again quantise",
        "mlp down again quantise",
    }


def test_tensor_parallel_ranks_gather_what_is_quantised() -> None:
    sp: dict[str, Any] = {"tp": 4, "sequence_parallel": True}
    wide = rows(low(precision="bf16", **sp), "gather")
    byte = rows(low(switches={"fp8_recipe": "current"}, **sp), "gather")
    assert {name: moved / wide[name][0] for name, (moved, _) in byte.items()} == dict.fromkeys(wide, 0.5)
    both = rows(low(B200, "mxfp8", **sp), "gather")  # a gradient is read along both axes, by copies of their own
    assert {name: moved / wide[name][0] for name, (moved, _) in both.items()} == pytest.approx(
        {name: MX if "dgrad" in name else MX / 2 for name in wide}
    )
    plain = rows(low(switches={"fp8_recipe": "rowwise"}, **sp), "gather")
    assert plain == wide
    assert rows(low(switches={"fp8_recipe": "rowwise"}, **sp), "qkv quantise")["qkv quantise"][0] == 4 * E
    ranks = rows(low(switches={"fp8_recipe": "current"}, **sp), "amax reduce")
    assert set(ranks) == {"qkv amax reduce", "mlp up amax reduce", "attention out grad amax reduce", "mlp down grad amax reduce"}
    turned = rows(low(switches={"fp8_recipe": "current"}, **sp), "transpose")  # after the gather, on every rank
    assert turned == {
        name: (2 * E, 1)
        for name in ("qkv transpose", "mlp up transpose", "attention out grad transpose", "mlp down grad transpose")
    }


@pytest.mark.parametrize(
    "gpu, precision, switches, width",
    [
        (H100, "bf16", {}, 2),
        (H100, "fp8", {"fp8_recipe": "current"}, 1),
        (H100, "fp8", {"fp8_recipe": "blockwise"}, MX),
        (B200, "mxfp8", {}, MX),
        (B200, "nvfp4", {}, FP4),
        (H100, "fp8", {"fp8_recipe": "current", "save_original_input": True}, 2),
    ],
)
def test_inputs_wait_for_the_weight_gradient_as_quantised(gpu: str, precision: str, switches: dict[str, Any], width: float) -> None:
    saved = build(low(gpu, precision, switches)).blocks[1].saved
    wide = build(low(gpu, "bf16")).blocks[1].saved
    assert wide - saved == pytest.approx((2 - width) * (E + E + 4 * E))  # qkv, up and down; attention keeps its own output


def test_delayed_scaling_keeps_the_attention_output_twice() -> None:
    """One scale a pass: what backward would quantise again would have another one."""
    delayed, current = (build(low(switches={"fp8_recipe": name})).blocks[1].saved for name in ("delayed", "current"))
    assert delayed - current == pytest.approx(E)


@pytest.mark.parametrize(
    "gpu, precision, switches, width",
    [
        (H100, "bf16", {}, 2),
        (H100, "fp8", {"fp8_recipe": "current"}, 2 + 2),
        (B200, "fp8", {"fp8_recipe": "current"}, 2 + 1),
        (H100, "fp8", {"fp8_recipe": "current", "fp8_param_gather": True}, 2),
        (H100, "fp8", {"fp8_weight_cache": False}, 2),
        (B200, "mxfp8", {}, 2 + 2 * MX),
        (B200, "mxfp8", {"fp8_param_gather": True}, 2 * MX),
        (B200, "nvfp4", {}, 2 + 2 * FP4),
    ],
)
def test_bytes_of_a_linear_weight(gpu: str, precision: str, switches: dict[str, Any], width: float) -> None:
    job = low(gpu, precision, switches)
    graph = build(job)
    linear = 4 * 12 * 1024 * 1024  # qkv, output, up and down of four layers
    if precision != "bf16":
        assert graph.stage_quantised == (linear,)
    rest = graph.stage_parameters[0] - linear
    assert memory_of(job, graph)[0].weights == pytest.approx(2 * rest + width * linear)


def test_weights_are_quantised_once_a_step_or_in_every_pass() -> None:
    linear = 4 * 12 * E
    once = build(low(switches={"fp8_recipe": "current"}))
    found = {once.ops.names[r]: float(once.ops.bytes[r]) for r in once.optimizer[0] if once.ops.names[r].startswith("weights ")}
    assert found["weights amax"] == 2 * linear and found["weights quantise"] == (2 + 2) * linear
    assert not rows(once.job, " weight ")
    each = low(switches={"fp8_recipe": "current", "fp8_weight_cache": False})
    assert rows(each, "qkv weight")["qkv weight quantise"] == (3 * E * (2 + 2), 1)
    assert not [n for n in build(each).ops.names if n == "weights quantise"]


@pytest.mark.parametrize("precision, width", [("fp8", 1), ("mxfp8", 2)])
def test_parameters_are_gathered_in_eight_bits(precision: str, width: float) -> None:
    """MXFP8's copies along rows and columns are both made from 16 bits."""
    job = low(B200, precision, {"overlap_param_gather": True, "fp8_param_gather": True}, dp=4, sharding="zero1")
    graph = build(job)
    assert gather_width(job.runtime, 2.0, 100.0, 60.0) == pytest.approx(0.4 * 2 + 0.6 * width)
    assert gather_width(low(B200, precision).runtime, 2.0, 100.0, 60.0) == 2.0
    plain = low(B200, precision, {"overlap_param_gather": True}, dp=4, sharding="zero1")
    times = [predict(j).overlapped["parameter_gather"] + predict(j).breakdown["exposed_parameter_gather"] for j in (job, plain)]
    assert (times[0] < times[1]) == (width < 2) and graph.stage_quantised[0] > 0


def test_full_sharding_holds_gathered_layers_in_eight_bits() -> None:
    linear, two = 12 * E, 2  # of a layer; two layers are gathered at once
    each = {"fp8_weight_cache": False}
    jobs = (low(switches={**each, "fp8_param_gather": narrow}, dp=4, sharding="fsdp") for narrow in (False, True))
    before, after = (memory_of(job, build(job))[0].buffers for job in jobs)
    assert before - after == pytest.approx(two * linear)


def test_ranks_agree_on_histories_once_a_pass() -> None:
    graph = build(low(switches={"fp8_amax_reduce": "tp"}, tp=2))
    amax = next(b for b in graph.blocks if b.name == "amax")
    calls = [r for r in (*amax.forward, *amax.backward) if graph.ops.kind[r] == Kind.COMM]
    assert [(int(graph.ops.comm[r]), int(graph.ops.axis[r])) for r in calls] == [(Comm.ALL_REDUCE, Axis.TP)] * 2
    assert [float(graph.ops.bytes[r]) for r in calls] == [4 * 4 * 4 * 3, 4 * 4 * 4 * 2]  # fp32, layers, products, histories
    assert all(chunk.blocks[-1] == (graph.blocks.index(amax), 1) for stage in graph.stages for chunk in stage)
    assert predict(low(switches={"fp8_amax_reduce": "tp"}, tp=2)).step_time_s > predict(low(tp=2)).step_time_s


def test_a_job_of_16_bit_layers_only_is_a_bf16_job() -> None:
    narrow = low(switches={"bf16_layers": (1, 3)})
    assert predict(narrow).step_time_s == pytest.approx(predict(low(precision="bf16")).step_time_s)
    some = build(low(switches={"bf16_layers": (1, 0)}, recompute="full", recompute_layers=2))
    names = [some.blocks[b].name for b, times in some.stages[0][0].blocks for _ in range(times)]
    assert names == ["embedding", "16-bit layer", "layer", "kept layer", "kept layer", "head"]


def test_experts_are_quantised_one_by_one() -> None:
    fields: dict[str, Any] = {"experts": 4, "top_k": 2, "expert_ffn": 2048}
    one = rows(low(switches={"fp8_recipe": "current"}, **fields), "expert up ")["expert up quantise"]
    each = rows(low(switches={"fp8_recipe": "current", "moe_grouped_gemm": "each"}, **fields), "expert up ")["expert up quantise"]
    assert each == (one[0], 4 * one[1])
    assert not [name for name in rows(low(**fields), "router") if "quantise" in name], "the router's product is in fp32"
    for precision, launches in (("mxfp8", 4), ("nvfp4", 1)):  # NVFP4's split_quantize has kernels for all of them
        found = rows(
            low(B200, precision, {"moe_grouped_gemm": "each"} | ({"fused_hadamard": True} if launches == 1 else {}), **fields),
            "expert up ",
        )
        assert found["expert up quantise"][1] == launches


@pytest.mark.parametrize(
    "gpu, precision, switches, path, words",
    [
        (A100, "fp8", {}, "runtime.precision", ("Ada, Hopper and later", "runtime.precision=bf16")),
        (H100, "mxfp8", {}, "runtime.precision", ("Blackwell and later", "fp8_recipe=blockwise")),
        (H100, "nvfp4", {}, "runtime.precision", ("Blackwell and later", "runtime.precision=fp8")),
        (H100, "bf16", {"fp8_recipe": "current"}, "runtime.fp8_recipe", ("runtime.precision is bf16", "runtime.precision=fp8")),
        (H100, "bf16", {"bf16_layers": (1, 1)}, "runtime.bf16_layers", ("runtime.precision is bf16",)),
        (B200, "mxfp8", {"fp8_recipe": "delayed"}, "runtime.fp8_recipe", ("scales of its own", "runtime.fp8_recipe=delayed")),
        (H100, "fp8", {"fp8_recipe": "current", "fp8_amax_reduce": "tp"}, "runtime.fp8_amax_reduce", ("delayed",)),
        (B200, "nvfp4", {"fp8_param_gather": True}, "runtime.fp8_param_gather", ("16 bits",)),
        (B200, "mxfp8", {"fused_hadamard": True}, "runtime.fused_hadamard", ("runtime.precision=nvfp4",)),
        (H100, "fp8", {"framework": "torchtitan", "fp8_recipe": "delayed"}, "runtime.fp8_recipe", ("current, rowwise under",)),
        (H100, "fp8", {"framework": "nemo", "fp8_recipe": "rowwise"}, "runtime.fp8_recipe", ("delayed, current, blockwise under",)),
        (H100, "fp8", {"fp8_recipe": "rowwise", "fp8_param_gather": True}, "runtime.fp8_param_gather", ("16 bits",)),
        (H100, "fp8", {"bf16_layers": (3, 2)}, "runtime.bf16_layers", ("model.layers = 4",)),
    ],
)
def test_impossible_precisions_say_why_and_what_to_type(
    gpu: str, precision: str, switches: dict[str, Any], path: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError) as caught:
        low(gpu, precision, switches)
    assert caught.value.path == path
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_parameters_are_quantised_once_on_their_way() -> None:
    with pytest.raises(PlanError, match="8 bits already"):
        low(switches={"fp8_param_gather": True}, dp=4, sharding="zero3", quantised_gather=True)


def test_frameworks_choose_recipes_by_version_and_precision() -> None:
    assert load_runtime("megatron-core", precision="fp8").recipe == "delayed"
    old, new = (load_runtime("nemo", version=version, precision="fp8") for version in ("24.07", "25.09"))
    assert (old.recipe, old.fp8_amax_reduce, new.recipe, new.fp8_amax_reduce) == ("delayed", "tp", "current", "none")
    assert load_runtime("nemo", version="25.09").fp8_recipe is None
    assert load_runtime("nemo", precision="fp8", fp8_recipe="blockwise").recipe == "blockwise"
    assert load_runtime("torchtitan", precision="fp8", launch="compile").quantise_fusion == "activation"
    assert load_runtime("torchtitan", precision="fp8").fp8_param_gather
    assert not load_runtime("torchtitan", precision="fp8", fp8_recipe="rowwise").fp8_param_gather
    assert load_runtime("hai-llm").recipe == "blockwise"
    assert not load_runtime("nemo", precision="nvfp4").overlap_tp


def test_backward_phases_hold_what_each_half_needs() -> None:
    """A schedule that cuts the backward pass in two quantises the output's gradient in the first half."""
    graph = build(low(switches={"fp8_recipe": "current"}))
    phases = {graph.ops.names[r]: int(graph.ops.phase[r]) for r in graph.blocks[1].backward}
    assert phases["mlp down grad quantise"] == Phase.DGRAD and phases["attention out again quantise"] == Phase.WGRAD


def test_weights_without_a_cache_are_kept_for_backward() -> None:
    """Transformer Engine's layers save the copy that the input's gradient reads: of every layer, from forward to backward."""
    without = {"fp8_weight_cache": False, "fp8_recipe": "delayed"}
    kept, cached = (build(low(switches=more)).blocks[1] for more in (without, {"fp8_recipe": "delayed"}))
    assert kept.quantised > 10 * E  # one byte each
    assert kept.saved - cached.saved == pytest.approx(kept.quantised)
    again = build(low(switches=without | {"save_original_input": True})).blocks[1]  # torchao quantises the weight once more
    inputs = build(low(switches={"fp8_recipe": "delayed", "save_original_input": True})).blocks[1]
    assert again.saved == inputs.saved
    recomputed = [build(low(switches=more, recompute="full")).blocks[1].saved for more in (without, {"fp8_recipe": "delayed"})]
    assert recomputed[0] == recomputed[1]
