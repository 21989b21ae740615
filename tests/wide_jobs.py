"""Random jobs over the whole catalogue: its models (dense, mixtures, MLA, hybrids, LoRA) with fewer layers, machines of all
vendors, frameworks, plans, NCCL settings and power limits. `random_jobs.py` draws odd shapes; this file draws what people run.

`drawn_job(number)` is the same job every time, also one with `changes`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.spec import Job, check, load_job, names
from windtunnel.spec.loading.files import entry as catalogue_entry

SETTINGS: tuple[dict[str, str | int], ...] = (
    {},
    {},
    {},
    {"NCCL_ALGO": "Ring"},
    {"NCCL_ALGO": "Tree,Ring"},
    {"NCCL_PROTO": "Simple"},
    {"NCCL_PROTO": "^LL128"},
    {"NCCL_MAX_NCHANNELS": 8},
    {"NCCL_MIN_NCHANNELS": 32},
    {"NCCL_NVLS_ENABLE": 0},
    {"NCCL_P2P_DISABLE": 1},
)
OVERLAPS = ("overlap_tp", "overlap_tp_dgrad", "overlap_grad_reduce", "overlap_param_gather", "overlap_p2p", "moe_shared_overlap")


def drawn_job(number: int, changes: Sequence[str] = ()) -> Job:
    """The job of a number: the first of its draws that the checks accept, with `changes` as a command line has them."""
    rng = random.Random(number)
    while True:
        try:
            return check(load_job(_table(rng), list(changes)))
        except WindtunnelError:
            continue


def _table(rng: random.Random) -> dict[str, Any]:
    model = rng.choice(_names("models"))
    entry = _entry("models", model)
    tp, pp, cp = rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 1, 1, 2, 4]), rng.choice([1, 1, 1, 1, 2])
    ep = rng.choice([1, 2, 4, 8]) if entry.get("experts") else 1
    cluster = rng.choice(_switched("clusters"))
    per_node = _per_node(cluster)
    split = tp * pp * cp
    dp = rng.choice([1, 2, 4, 8, 16, 32]) * (ep if rng.random() < 0.7 else 1)
    if split * dp > per_node:
        dp = math.lcm(split * dp, per_node) // split
    vpp = rng.choice([1, 1, 2]) if pp > 1 else 1
    micro = rng.choice([1, 1, 2])
    batches = rng.choice([1, 2, 4, 8]) * (pp if vpp > 1 else 1)
    plan: dict[str, Any] = {
        "tp": tp, "pp": pp, "cp": cp, "vpp": vpp, "dp": dp, "ep": ep,
        "micro_batch": micro, "global_batch": micro * batches * dp,
        "seq": rng.choice([512, 2048, 4096, 8192]),
        "sequence_parallel": tp > 1 and rng.random() < 0.7,
        "sharding": rng.choice(["none", "zero1", "zero1", "zero2", "zero3", "fsdp", "hsdp"]),
        "recompute": rng.choice(["none", "none", "selective", "full"]),
    }  # fmt: skip
    if vpp == 1 and pp > 1:
        plan["schedule"] = rng.choice(["auto", "auto", "gpipe", "zb-h1"])
    if plan["sharding"] == "hsdp" and dp % 2 == 0:
        plan["shard_group"] = dp // 2
    if cp > 1:
        plan["cp_kind"] = rng.choice(["p2p", "all_gather", "a2a"])
    runtime: dict[str, Any] = {
        "framework": rng.choice(_names("frameworks")),
        "precision": rng.choice(["bf16", "bf16", "bf16", "fp16", "fp8"]),
        "nccl": rng.choice(SETTINGS),
        **{name: rng.random() < 0.7 for name in OVERLAPS if rng.random() < 0.5},
    }
    if ep > 1:
        runtime["moe_dispatch"] = rng.choice(["alltoall", "allgather", "deepep"])
    machine: dict[str, Any] = {"base": cluster, "gpus": split * dp}
    if rng.random() < 0.15:
        machine["fabric"] = rng.choice([name for name in _switched("fabrics") if name != "none"])
    if rng.random() < 0.2 and _watts(cluster):
        machine["node"] = {"gpu": {"power_cap_w": round(rng.uniform(0.5, 1.0) * _watts(cluster))}}
    table = {"model": {"base": model} | _fewer_layers(rng, entry, pp * vpp), "plan": plan, "runtime": runtime, "cluster": machine}
    if rng.random() < 0.12:
        table["model"]["lora"] = {"rank": rng.choice([8, 16, 64])}
    return table | {"name": "drawn"}


def _fewer_layers(rng: random.Random, entry: dict[str, Any], stages: int) -> dict[str, Any]:
    """Few layers predict in milliseconds; a model with a pattern of layers keeps its own number."""
    patterned = any(entry.get(name) for name in ("layer_pattern", "window_pattern", "mixer_pattern", "vision", "mtp_layers"))
    return {} if patterned else {"layers": stages * rng.choice([1, 2, 4])}


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(names(kind))


@cache
def _switched(kind: str) -> tuple[str, ...]:
    """Those without dimensions: `grid_jobs.py` draws the others."""
    from windtunnel.spec import load_cluster
    from windtunnel.spec.loading.load import load_fabric

    of = {"clusters": lambda name: load_cluster(name).fabric, "fabrics": load_fabric}[kind]
    return tuple(name for name in _names(kind) if not of(name).is_grid)


@cache
def _entry(kind: str, name: str) -> dict[str, Any]:
    return dict(catalogue_entry(kind, name, "model"))


@cache
def _per_node(cluster: str) -> int:
    from windtunnel.spec import load_cluster

    return load_cluster(cluster).node.gpus


@cache
def _watts(cluster: str) -> float:
    from windtunnel.spec import load_cluster

    return load_cluster(cluster).gpu.power_w or 0.0
