"""Bounds beside predictions on random plans of random jobs: none may lie above; asserts nothing.

    python benchmarks/search_random.py FILE [FILE ...] [--count 1000] [--first 0] [--plans 40] [--micro-batches 64] [--layers N]
                                        [--wide] [--kind KIND] [--again]

Each space is drawn from its number: a model of the catalogue, a cluster, a framework, switches of the runtime, and values of the
plan's fields; then some of its plans. The first FILE gets a line of JSON for each space, and the next run continues after the last
one (`--first`: where a new file begins, so that several processes share the work). Then all FILEs are summed up by kind of job.
`--again` draws their spaces again and compares today's bounds with the predictions that they hold: use it after a change of the
bounds alone. A plan takes 20 to 60 ms of CPU, mostly to write the program of its prediction, pass by pass: with `--micro-batches 4
--plans 1000 --layers 8` 9 to 20 ms. A file holds spaces of one `--layers`,
with or without `--wide`.
`--kind "unequal GPUs"` leaves out spaces of other kinds: where a bound was once too high, more are worth while.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.search.bound.bounds import bounds
from windtunnel.search.space import BY_SPEED, EVEN, LIGHT_ENDS, LIGHT_LAST, WITH_TP, PlanColumns, Space
from windtunnel.spec import Job, load_job, names

FLAGS = (False, True)
SAME = 1e-9
"""Relative difference that is rounding."""

FIELDS: dict[str, tuple[Any, ...]] = {
    "plan.tp": (1, 2, 4, 8),
    "plan.cp": (1, 2, 4),
    "plan.pp": (1, 2, 3, 4, 8, 16),
    "plan.vpp": (1, 2, 3, 4),
    "plan.micro_batch": (1, 2, 4),
    "plan.ep": (1, 2, 4, 8, 16, 32),
    "plan.etp": (1, 2, 4),
    "plan.sequence_parallel": (WITH_TP,),
    "plan.stages": (EVEN, LIGHT_LAST, LIGHT_ENDS),
    "plan.schedule": ("auto", "gpipe", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev"),
    "plan.recompute": ("none", "selective", "ops", "full"),
    "plan.recompute_layers": (None, 1),
    "plan.sharding": ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp"),
    "plan.cp_kind": (None, "p2p", "all_gather", "a2a"),
    "runtime.overlap_grad_reduce": FLAGS,
    "runtime.overlap_param_gather": FLAGS,
    "runtime.overlap_p2p": FLAGS,
    "runtime.overlap_tp": FLAGS,
    "runtime.overlap_tp_dgrad": FLAGS,
    "runtime.moe_a2a_overlap": FLAGS,
}
"""Fields that may be open, with values to draw from."""

OPEN: dict[str, tuple[Any, ...]] = {
    "plan.offload.activations": (0, 1, 2),
    "plan.offload.optimizer": ("none", "host"),
    "plan.offload.parameters": ("none", "host"),
    "plan.placement": (("tp", "cp", "ep", "dp", "pp"), ("tp", "pp", "cp", "ep", "dp"), ("dp", "tp", "cp", "ep", "pp")),
    "plan.gradient_accumulation": ("auto", "local", "reduced"),
    "plan.recompute_modules": (("core_attn",), ("core_attn", "mlp"), ("layernorm",)),
    "plan.shard_group": (None, 2, 4, 8),
    "plan.cp_kind": (None, "a2a+p2p"),
    "plan.cp_balance": ("zigzag", "contiguous"),
    "plan.document": (None, 1024),
    "plan.quantised_gather": FLAGS,
    "plan.quantised_reduce": FLAGS,
    "plan.global_batch": (64, 128, 256),
    "plan.secondary_group": (None, 4, 8),
    "plan.hierarchical_gather": FLAGS,
    "plan.cp_sizes": (None, (2, 2), (4, 2)),
    "plan.offload.modules": ((), ("core_attn",)),
    "plan.offload.optimizer_fraction": (0.3, 1.0),
    "plan.offload.overlap": FLAGS,
}
"""Fields that are seldom open: drawn with `--wide`."""

USUAL = ("plan.tp", "plan.pp", "plan.micro_batch", "plan.sequence_parallel", "plan.stages")
"""Fields that are always open."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "runtime.precision": ("fp16", "fp8", "fp32"),
    "runtime.launch": ("compile", "cuda_graph"),
    "runtime.attention": ("unfused",),
    "runtime.optimizer": ("lamb", "sgd", "muon"),
    "runtime.reduce_dtype": ("bf16",),
    "runtime.gradient_dtype": ("bf16",),
    "runtime.cross_entropy": ("chunked", "linear", "gathered"),
    "runtime.moe_dispatch": ("allgather", "deepep"),
    "runtime.reduce_every_micro_batch": ("true",),
    "runtime.reshard_after_forward": ("false",),
    "runtime.p2p_scatter": ("false",),
    "runtime.launch_blocking": ("true",),
    "runtime.nccl.NCCL_ALGO": ("Ring", "Tree"),
    "plan.gradient_accumulation": ("local", "reduced"),
    "plan.placement": ('["tp","pp","cp","ep","dp"]', '["tp","cp","dp","ep","pp"]'),
}
"""Settings that a job has now and then."""

WIDE = (
    *(
        f"runtime.{switch}=true"
        for switch in (
            "fp8_param_gather", "save_original_input", "split_copies", "activation_fp8_store", "sharding_copies",
            "contiguous_gradients", "moe_host_wait", "moe_dispatch_fp8", "moe_fused_mlp", "moe_fused_router",
            "moe_shared_overlap", "p2p_sync", "collective_checks",
        )
    ),
    *(
        f"runtime.{switch}=false"
        for switch in (
            "fp8_weight_cache", "fused_norm", "fused_activation", "fused_rope", "fused_dropout_add", "fused_cross_entropy",
            "fp32_logits", "fused_optimizer", "fused_wgrad", "master_weights", "moe_permute_fusion",
        )
    ),
    'runtime.precision="mxfp8"', 'runtime.precision="nvfp4"', 'runtime.fp8_recipe="current"', 'runtime.fp8_recipe="blockwise"',
    'runtime.fp8_amax_reduce="tp"', 'runtime.fp8_amax_reduce="dp"', 'runtime.quantise_fusion="none"', "runtime.bf16_layers=[1,1]",
    'runtime.graph_scope=["attn"]', 'runtime.exp_avg_dtype="bf16"', 'runtime.exp_avg_sq_dtype="int8"',
    'runtime.muon_tp="blockwise"', 'runtime.muon_tp="distributed"', 'runtime.optimizer="adafactor"',
    'runtime.weight_dtype="fp32"', 'runtime.cp_library="torch"', "runtime.tp_chunks=8", 'runtime.reduce_with="all_reduce"',
    "runtime.prefetch_blocks=0", "runtime.prefetch_blocks=2", "runtime.prefetch_bucket=50000000",
    "runtime.live_parameters=500000000", "runtime.persistent_parameters=100000", 'runtime.sharded_calls="tensor"',
    'runtime.gather_bucket="100MB"', "runtime.bucket=20000000", "runtime.bucket=1000000000", 'runtime.bucket_calls="tensor"',
    'runtime.moe_grouped_gemm="each"', 'runtime.moe_dispatch="hybridep"', 'runtime.moe_router_dtype="bf16"',
    "runtime.moe_imbalance=1.4", "runtime.moe_skew=0.5", "runtime.moe_capacity=1.25", "runtime.moe_pad_to_capacity=true",
    "runtime.p2p_messages=[2,1]", "runtime.p2p_poll=0.0001",
    *(f"plan.placement={o.split()}" for o in ("dp tp cp ep pp", "pp tp cp ep dp", "cp dp tp ep pp", "tp cp pp ep dp")),
    *(f"runtime.host.{part}=0.0002" for part in ("launch", "layer", "collective", "linear", "expert", "mixture", "wait", "check")),
    "runtime.host.micro_batch=0.003", "runtime.host.step=0.05", "runtime.host.check_across=0.0005", 'runtime.data.overlap="none"',
    'runtime.data.overlap="gradient_sync"', 'runtime.data.reader="gpu"', "runtime.data.sample=0.01",
    "runtime.data.read_back=true", 'runtime.data.storage="20MB/s"',
    'plan.cp_balance="contiguous"', "plan.document=1024", 'plan.sharding="mics"', "plan.shard_group=4",
    "plan.secondary_group=8", "plan.quantised_gather=true", "plan.quantised_reduce=true", "plan.hierarchical_gather=true",
    'plan.recompute_modules=["core_attn","mlp"]',
    'plan.recompute_modules=["layernorm","moe_act"]', "plan.recompute_modules=[\"moe\"]", "model.frozen=true", "model.lora={}",
    "model.mtp_layers=1", "model.tied_embeddings=true", "model.dropout=true", "model.causal=false", "model.window=1024",
    "model.parallel_block=true", "cluster.node.host_speed=0.4", "cluster.node.host_speed=3.0",
    "calibration={kernels={gemm=1.5,attention=0.6},calls={tp=0.5,dp=2.0},host=1.7}",
    "calibration={kernels={elementwise=0.5,optimizer=0.3},calls={cp=2.0,ep=0.5,dp=0.4,pp=0.3,world=0.5},host=0.4}",
    "plan.offload.overlap=false",
    "plan.offload.optimizer_fraction=0.5", 'plan.offload.modules=["core_attn"]', "runtime.nccl.NCCL_MAX_NCHANNELS=4",
    "cluster.node.nic.count=1", "cluster.node.scale_up.size=4", "cluster.fabric.leaf_nodes=2", "cluster.fabric.pod_nodes=4",
    "cluster.fabric.oversubscription=4.0", "cluster.fabric.hop_latency=0.00002", 'cluster.node.gpu.memory_bandwidth="1TB/s"',
    "cluster.node.gpu.l2=1e9", "cluster.gpu_spread=0.02", "plan.cp_sizes=[2,2]", 'plan.cp_kind="a2a"',
    'runtime.nccl.NCCL_PROTO="Simple"', "runtime.nccl.NCCL_P2P_DISABLE=1", "cluster.node.gpu.power_cap_w=450",
    "cluster.node.gpu.clock_lock=0.7", 'plan.offload.optimizer="pool"', 'plan.offload.optimizer="expansion"',
)  # fmt: skip
"""Settings that are seldom: drawn with `--wide`."""

UNEQUAL = (
    "unequal.links=[{nodes=[0],rate=0.5}]",
    "unequal.pauses=[{ranks=[0],seconds=0.1}]",
    "unequal.batches=[{nodes=[0],micro_batches=1}]",
)
"""One of them in 50 wide spaces: predictions of unequal ranks take ten times as long."""

OFFLOADS = (
    ("plan.offload.optimizer=host",),
    ("plan.offload.activations=1",),
    ("plan.offload.optimizer=host", "plan.offload.parameters=host"),
    ("plan.offload.optimizer=nvme",),
)


def drawn(number: int, plans: int, layers: int, wide: bool = False) -> tuple[str, Job, PlanColumns] | None:
    """Kind, job and at most so many plans of a space; None if they contradict each other. `layers`: the most of a model. `wide`:
    with settings of `WIDE` and fields of `OPEN` besides. What else is drawn depends on neither."""
    rng = np.random.default_rng(number)

    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    gpus = int(one((8, 16, 32, 64, 96, 128, 256)))
    long = rng.random() < 0.15
    overrides = [f"cluster.gpus={gpus}"]
    seq = int(one((32768, 65536, 131072) if long else (2048, 4096, 8192)))
    table = {
        "model": one(names("models")),
        "cluster": {"base": one(names("clusters"))},
        "runtime": {"framework": one(names("frameworks"))},
        "plan": {"global_batch": gpus * int(one((1, 2, 3, 4, 8))), "seq": seq},
    }
    overrides += [f"{path}={_written(one(values))}" for path, values in SETTINGS.items() if rng.random() < 0.08]
    kind = "long context" if long else ""
    if rng.random() < 0.15:
        overrides += one(OFFLOADS)
        kind = "offload"
    if gpus > 16 and rng.random() < 0.12:
        mixed = f"unequal.mixed=[{{nodes=[0,1],gpu='{one(('a100-sxm-80gb', 'h100-sxm-80gb', 'h20'))}'}}]"
        overrides.append(one((mixed, "unequal.slow=[{nodes=[1],factor=1.3},{nodes=[0],clock=0.7}]")))
        kind = "unequal GPUs"
    try:
        job = load_job(table, overrides)
        if job.model.layers > layers:
            overrides.append(f"model.layers={layers}")
            job = load_job(table, overrides)
        if wide:
            job = _widened(number, table, overrides, job)
        fields = {path: _some(rng, values) for path, values in FIELDS.items() if path in USUAL or rng.random() < 0.5}
        if wide:
            others = np.random.default_rng([number, 2])
            fields |= {path: values for path, values in OPEN.items() if others.random() < 0.08}
        if job.unequal is not None:
            fields["plan.stages"] = (EVEN, BY_SPEED)
        if getattr(job.model, "experts", None) is None:
            fields = {path: values for path, values in fields.items() if path not in ("plan.ep", "plan.etp")}
        columns = Space(job, fields).columns()
    except WindtunnelError:
        return None
    rows = rng.permutation(len(columns))[:plans]
    return kind or ("mixture" if job.model.experts else "dense"), job, columns.take(np.sort(rows))


def _widened(number: int, table: dict[str, Any], overrides: list[str], job: Job) -> Job:
    """The job with a few settings of `WIDE`, each of which it takes."""
    rng = np.random.default_rng([number, 1])
    settings = [WIDE[place] for place in np.flatnonzero(rng.random(len(WIDE)) < 0.05)]
    for setting in (*settings, UNEQUAL[int(rng.integers(len(UNEQUAL)))]) if rng.random() < 0.02 else settings:
        try:
            job = load_job(table, [*overrides, setting])
        except WindtunnelError:
            continue
        overrides.append(setting)
    return job


def _written(value: str) -> str:
    return value if value[0] in "[" or value in ("true", "false") else f'"{value}"'


def _some(rng: np.random.Generator, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Some of the values, at least one."""
    return tuple(value for value in values if rng.random() < 0.6) or values[:1]


def predicted(job: Job, columns: PlanColumns, most: int) -> Iterator[tuple[float, float, bool]]:
    """Seconds of the step, bytes of the fullest stage, and whether the plan fits; zeros for a plan that contradicts itself or has
    more than `most` micro batches, which make a prediction slow, not different."""
    for number in range(len(columns)):
        change = columns.change(number)
        try:
            tried = change.apply(job)
            if tried.micro_batches > most:
                yield 0.0, 0.0, False
                continue
            found = predict(tried)
        except WindtunnelError:
            yield 0.0, 0.0, False
            continue
        yield found.step_time_s, max(stage.allocated for stage in found.memory), all(stage.fits for stage in found.memory)


def measured(
    number: int, plans: int, most: int, layers: int, wide: bool = False, only: str = "", known: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Predictions and bounds of a space; predictions are those of `known` if it is given. None where it is of another kind than
    `only`."""
    space = drawn(number, plans, layers, wide)
    if space is None or only not in ("", space[0]):
        return None
    kind, job, columns = space
    if known is None:
        steps = list(predicted(job, columns, most))
        known = {"seconds": [s for s, _, _ in steps], "bytes": [b for _, b, _ in steps], "fits": [f for _, _, f in steps]}
    if not any(known["seconds"]):
        return {"space": number, "kind": kind, "seconds": [], "bytes": [], "fits": [], "bound": [], "least": [], "wrong": []}
    try:
        found = bounds(columns)
    except WindtunnelError:  # what has no bound is refused as a whole
        return None
    ran = [place for place, seconds in enumerate(known["seconds"]) if seconds > 0.0]
    return {
        "space": number,
        "kind": kind,
        **{name: known[name] for name in ("seconds", "bytes", "fits")},
        "bound": found.seconds.tolist(),
        "least": found.bytes.tolist(),
        "wrong": [place for place in ran if found.refused[place]],
    }


def told(lines: list[dict[str, Any]]) -> None:
    """Prints the sums, by kind and of all."""
    kinds = sorted({line["kind"] for line in lines})
    for kind in (*kinds, "all"):
        some = [line for line in lines if kind in (line["kind"], "all")]
        columns = {name: np.concatenate([line[name] for line in some] or [[]]) for name in ("seconds", "bytes", "bound", "least")}
        ran = columns["seconds"] > 0.0
        if not ran.any():
            continue
        fits = np.concatenate([np.array(line["fits"], np.bool_) for line in some])
        ratio, memory = columns["bound"][ran] / columns["seconds"][ran], columns["least"][ran] / columns["bytes"][ran]
        print(
            f"{kind}: {len(some):,} spaces, {ran.sum():,} plans; bound over step median {np.median(ratio):.3f}, of those that fit "
            f"{np.median(columns['bound'][fits] / columns['seconds'][fits]) if fits.any() else 0.0:.3f}, least {ratio.min():.3f}; "
            f"above: {(ratio > 1.0 + SAME).sum()} steps, {(memory > 1.0 + SAME).sum()} of memory; "
            f"refused but predicted: {sum(len(line['wrong']) for line in some)}"
        )
        for line in some if kind == "all" else ():
            for place, seconds in enumerate(line["seconds"]):
                high = seconds and line["bound"][place] > seconds * (1.0 + SAME)
                more = seconds and line["least"][place] > line["bytes"][place] * (1.0 + SAME)
                if high or more or place in line["wrong"]:
                    print(f"  space {line['space']} plan {place}: {line['bound'][place]:.6g} of {seconds:.6g} s, "
                          f"{line['least'][place]:.6g} of {line['bytes'][place]:.6g} B")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=0, help="further plans to predict")
    parser.add_argument("--first", type=int, default=0, help="number of a new file's first space")
    parser.add_argument("--plans", type=int, default=40, help="most plans of a space")
    parser.add_argument("--micro-batches", type=int, default=64, help="most micro batches of a plan that is predicted")
    parser.add_argument("--layers", type=int, default=10**6, help="most layers of a model: a prediction's time grows with them")
    parser.add_argument("--wide", action="store_true", help="draw settings that are seldom, too")
    parser.add_argument("--kind", default="", help="only spaces of this kind, as the sums name it")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    gc.set_threshold(50_000)  # a prediction makes many objects and few cycles: an eighth less time
    own, *others = ([json.loads(text) for text in file.read_text().splitlines()] if file.exists() else [] for file in options.file)
    done, number = 0, max((line["space"] + 1 for line in own), default=options.first)
    while done < options.count:
        line = measured(number, options.plans, options.micro_batches, options.layers, options.wide, options.kind)
        if line is not None:
            with options.file[0].open("a") as out:
                out.write(json.dumps(line) + "\n")
            own.append(line)
            done += sum(seconds > 0.0 for seconds in line["seconds"])
        number += 1
    lines = [line for some in (own, *others) for line in some]
    if options.again:
        held = [line for line in lines if line["seconds"]]
        drawing = (0, options.layers, options.wide, "")
        lines = [line for old in held if (line := measured(old["space"], len(old["seconds"]), *drawing, old)) is not None]
    told(lines)


if __name__ == "__main__":
    main()
