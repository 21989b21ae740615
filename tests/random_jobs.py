"""Random jobs for laws: any model, plan, runtime and machine that a user could write down, small enough to predict in milliseconds.

`jobs()` draws jobs that pass `check`, `checked_tables()` their tables; `tables()` draws job tables of which many contradict
themselves, as typed ones do.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from windtunnel.base.errors import PlanError
from windtunnel.spec import Job, check, load_job, names
from windtunnel.spec.loading.load import load_fabric

SHARDINGS = ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp")
RECOMPUTES = ("none", "selective", "ops", "full")
PLACEMENTS = (
    ("tp", "cp", "ep", "dp", "pp"),
    ("tp", "cp", "ep", "pp", "dp"),
    ("dp", "tp", "cp", "ep", "pp"),
    ("pp", "cp", "tp", "ep", "dp"),
)
SCHEDULES = {
    1: ("auto", "gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe"),
    2: ("auto", "interleaved-zb", "breadth-first", "zbv", "dualpipev"),
    3: ("auto", "interleaved-zb", "breadth-first"),
}
"""Schedules by virtual stages."""

SWITCHES = (
    "fused_norm",
    "fused_activation",
    "fused_rope",
    "fused_dropout_add",
    "fused_cross_entropy",
    "fused_optimizer",
    "fused_wgrad",
    "master_weights",
    "overlap_tp",
    "overlap_tp_dgrad",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_p2p",
    "reduce_every_micro_batch",
    "reshard_after_forward",
    "p2p_scatter",
    "p2p_sync",
)
FABRICS = [name for name in names("fabrics") if name != "none" and not load_fabric(name).is_grid]
"""Machines of dimensions are drawn by `grid_jobs.py`."""
NODES = (
    "dgx-a100-80gb",
    "hgx-a100-80gb-4nic",
    "dgx-h100",
    "hgx-h200",
    "hgx-b200",
    "gb200-nvl72",
    "mi300x-8",
    "l40s-8",
    "a100-pcie-8",
    "dgx-1v",
    "jean-zay-a100",
    "p4d.24xlarge",
    "gaudi2-8",
)


@st.composite
def models(draw: st.DrawFn, tp: int = 1, layers: int | None = None) -> dict[str, Any]:
    """A decoder of odd or even sizes whose heads and ffn are multiples of `tp`."""
    heads = tp * draw(st.sampled_from([1, 2, 3, 4]))
    kv = draw(st.sampled_from([d for d in range(1, heads + 1) if heads % d == 0 and max(d, tp) % min(d, tp) == 0]))
    table: dict[str, Any] = {
        "name": "random",
        "layers": layers or draw(st.integers(1, 8)),
        "hidden": heads * draw(st.sampled_from([1, 8, 64, 100, 128])),
        "heads": heads,
        "kv_heads": kv,
        "ffn": tp * draw(st.sampled_from([1, 7, 128, 1000, 2048])),
        "vocab": draw(st.sampled_from([1, 2, 1000, 32000, 51200])),
        "max_seq": 8192,
        "activation": draw(st.sampled_from(["gelu", "relu", "squared_relu", "swiglu", "geglu"])),
        "norm": draw(st.sampled_from(["layernorm", "rmsnorm"])),
        "position": draw(st.sampled_from(["learned", "rope", "alibi", "none"])),
        "tied_embeddings": draw(st.booleans()),
        "linear_bias": draw(st.booleans()),
        "qk_norm": draw(st.booleans()),
        "embedding_norm": draw(st.booleans()),
        "dropout": draw(st.booleans()),
        "parallel_block": draw(st.booleans()),
    }
    if draw(st.integers(0, 3)) == 0:
        table["window"] = draw(st.sampled_from([1, 100, 100000]))
    if draw(st.integers(0, 3)) == 0:
        table["head_dim"] = draw(st.sampled_from([1, 64, 96]))
    return table


@st.composite
def runtimes(draw: st.DrawFn) -> dict[str, Any]:
    """Any framework with any of its switches thrown."""
    table: dict[str, Any] = {
        "framework": draw(st.sampled_from(names("frameworks"))),
        "precision": draw(st.sampled_from(["bf16", "fp16"])),
        "launch": draw(st.sampled_from(["eager", "compile", "cuda_graph"])),
        "attention": draw(st.sampled_from(["unfused", "fused_softmax", "flash"])),
        "optimizer": draw(st.sampled_from(["adam", "lamb", "sgd"])),
        "reduce_dtype": draw(st.sampled_from(["fp32", "bf16"])),
        "gradient_dtype": draw(st.sampled_from(["fp32", "bf16"])),
        "reduce_with": draw(st.sampled_from(["reduce_scatter", "all_reduce"])),
        "bucket": draw(st.sampled_from([1.0, 1e5, 160e6])),
    }
    if draw(st.integers(0, 3)) == 0:
        table["data"] = {
            "overlap": draw(st.sampled_from(["none", "gradient_sync", "step"])),
            "sample": draw(st.sampled_from([0.0, 1e-3])),
            "reader": draw(st.sampled_from(["gpu", "tp_rank", "node"])),
            "read_back": draw(st.booleans()),
        }
    for switch in draw(st.lists(st.sampled_from(SWITCHES), unique=True, max_size=8)):
        table[switch] = draw(st.booleans())
    return table


@st.composite
def tables(draw: st.DrawFn, pp: int | None = None, tp: int | None = None, dp: int | None = None) -> dict[str, Any]:
    """A whole job as a plain table; it may ask for more than its machine or its frameworks can do."""
    tp = tp or draw(st.sampled_from([1, 2, 4, 8]))
    pp = pp or draw(st.sampled_from([1, 1, 2, 3, 4]))
    cp = draw(st.sampled_from([1, 1, 1, 2]))
    dp = dp or draw(st.sampled_from([1, 2, 3, 4, 8]))
    vpp = draw(st.sampled_from([1, 1, 2, 3])) if pp > 1 else 1
    micro, batches = draw(st.sampled_from([1, 2, 3])), draw(st.integers(1, 8))
    batches = pp * max(1, batches // pp) if vpp > 1 else batches
    plan: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "vpp": vpp,
        "sequence_parallel": draw(st.booleans()),
        "sharding": draw(st.sampled_from(SHARDINGS)),
        "micro_batch": micro,
        "global_batch": micro * batches * dp,
        "seq": draw(st.sampled_from([1, 7, 64, 512, 2048])) * 2 * cp * tp,
        "recompute": draw(st.sampled_from(RECOMPUTES)),
        "placement": draw(st.sampled_from(PLACEMENTS)),
    }
    if cp > 1:
        plan["cp_kind"] = draw(st.sampled_from([None, "p2p", "all_gather", "a2a"]))
        plan["cp_balance"] = draw(st.sampled_from(["zigzag", "contiguous"]))
    plan["gradient_accumulation"] = draw(st.sampled_from(["auto", "auto", "reduced"]))
    plan["schedule"] = draw(st.sampled_from(SCHEDULES[vpp]))
    per = draw(st.lists(st.integers(1, 3), min_size=pp * vpp, max_size=pp * vpp))
    if draw(st.booleans()):
        plan["stages"], layers = per, sum(per)
    else:
        layers = per[0] * pp * vpp
    if draw(st.integers(0, 3)) == 0:
        plan["recompute_layers"] = draw(st.integers(0, min(per)))
    shards = dp * cp
    if draw(st.integers(0, 2)) == 0:
        plan["shard_group"] = draw(st.sampled_from([d for d in range(1, shards + 1) if shards % d == 0]))
    if draw(st.integers(0, 3)) == 0:
        places = st.sampled_from(["none", "host", "nvme", "expansion", "pool"])
        plan["offload"] = {"activations": draw(st.integers(0, min(per))), "optimizer": draw(places), "parameters": draw(places)}
    gpus = tp * pp * cp * dp
    node = draw(st.sampled_from(NODES))
    cluster: dict[str, Any] = {
        "id": "random",
        "node": {"base": node},
        "fabric": draw(st.sampled_from(FABRICS)),
        "gpus": gpus,
        "gpu_spread": draw(st.sampled_from([0.0, 0.02])),
        "price_per_gpu_hour": draw(st.sampled_from([0.0, 2.0])),
    }
    if "offload" in plan:
        cluster["node"] |= {
            "host_memory": "1TiB",
            "storage": {"read": "20GB/s", "write": "10GB/s", "capacity": "8TB"},
            "expansion": {"bandwidth": "200GB/s", "capacity": "4TB"},
        }
        cluster["memory_pool"] = {
            "ports": 8,
            "bandwidth": "100GB/s",
            "gpu_bandwidth": "256GB/s per GPU each way",
            "capacity": "64TB",
            "in_switch_collectives": draw(st.booleans()),
        }
    if draw(st.booleans()):
        cluster["node"]["gpu"] = draw(st.sampled_from(names("gpus")))
    job = {"name": "random", "plan": plan, "runtime": draw(runtimes()), "cluster": cluster}
    job["model"] = draw(models(tp=tp, layers=layers))
    if draw(st.booleans()):
        job["tokens"] = 1e9
    return job


@st.composite
def jobs(draw: st.DrawFn, **fixed: Any) -> Job:
    """A job that passes `check`."""
    return _checked(draw, fixed)[1]


@st.composite
def checked_tables(draw: st.DrawFn, **fixed: Any) -> dict[str, Any]:
    """A whole job as a plain table that passes `check`."""
    return _checked(draw, fixed)[0]


def _checked(draw: st.DrawFn, fixed: dict[str, Any]) -> tuple[dict[str, Any], Job]:
    """A table and its job: the cluster is rounded up to whole nodes by more data parallelism."""
    table = draw(tables(**fixed))
    plan, cluster = table["plan"], table["cluster"]
    job = load_job(table)
    per_node = job.cluster.node.gpus
    split = plan["tp"] * plan["pp"] * plan["cp"]
    if cluster["gpus"] > per_node and cluster["gpus"] % per_node and "dp" not in fixed:
        dp = cluster["gpus"] // split
        wider = math.lcm(split * dp, per_node) // split
        plan["global_batch"] = plan["global_batch"] // dp * wider
        cluster["gpus"] = split * wider
        plan.pop("shard_group", None)
        job = load_job(table)
    try:
        return table, check(job)
    except PlanError:
        assume(False)
        raise


def scaled(job: Job, what: str, factor: float) -> Job:
    """The same job on hardware whose `what` is `factor` times faster: memory, flops, nic or scale_up."""
    cluster = job.cluster
    node, gpu = cluster.node, cluster.node.gpu
    if what == "memory":
        gpu = gpu.model_copy(update={"memory_bandwidth": gpu.memory_bandwidth * factor})
    elif what == "flops":
        gpu = gpu.model_copy(
            update={name: {k: v * factor for k, v in getattr(gpu, name).items()} for name in ("peak", "achievable")}
        )
    elif what == "nic":
        node = (
            node
            if node.nic is None
            else node.model_copy(update={"nic": node.nic.model_copy(update={"bandwidth": node.nic.bandwidth * factor})})
        )
    elif what == "scale_up":
        node = node.model_copy(
            update={"scale_up": node.scale_up.model_copy(update={"bandwidth": node.scale_up.bandwidth * factor})}
        )
    else:
        raise KeyError(what)
    node = node.model_copy(update={"gpu": gpu})
    return job.model_copy(update={"cluster": cluster.model_copy(update={"node": node})})


def changed(job: Job, **fields: Any) -> Job:
    """The job with fields of its plan, model or runtime replaced; unchecked."""
    parts = {}
    for noun in ("plan", "model", "runtime", "cluster"):
        mine = {k: v for k, v in fields.items() if k in type(getattr(job, noun)).model_fields}
        parts[noun] = getattr(job, noun).model_copy(update=mine)
    return job.model_copy(update=parts)
