"""The examples whose numbers are watched: every job of the catalogue, and variants that use what no catalogue job does."""

from __future__ import annotations

from typing import Any

from windtunnel.predict import predict
from windtunnel.spec import check, load_job, names

VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpt3-175b-64 gpipe": ("gpt3-175b-64", ("plan.vpp=1", "plan.schedule=gpipe", "plan.recompute=full")),
    "gpt3-175b-64 uneven": (
        "gpt3-175b-64",
        ("plan.vpp=1", "plan.stages=[11, 13, 12, 12, 12, 12, 13, 11]", "runtime.overlap_tp=true"),
    ),
    **{
        f"gpt3-175b-64 {schedule}": ("gpt3-175b-64", (f"plan.vpp={vpp}", f"plan.schedule={schedule}", "runtime.overlap_p2p=true"))
        for schedule, vpp in (
            ("breadth-first", 3),
            ("zb-h1", 1),
            ("zb-h2", 1),
            ("interleaved-zb", 3),
            ("zbv", 2),
            ("dualpipev", 2),
            ("dualpipe", 1),
        )
    },
    "llama2-70b-64xh100 cp": ("llama2-70b-64xh100", ("plan.cp=2", "plan.dp=2", "plan.global_batch=64", "plan.sharding=zero2")),
    "llama2-70b-64xh100 cp both": (
        "llama2-70b-64xh100",
        (
            "plan.cp=4",
            "plan.dp=4",
            "plan.pp=1",
            "plan.vpp=1",
            "plan.global_batch=64",
            "plan.cp_kind=a2a+p2p",
            "plan.cp_sizes=[2, 2]",
            "plan.seq=16384",
        ),
    ),
    "llama3-8b-8xh100 hsdp": (
        "llama3-8b-8xh100",
        ("cluster.gpus=16", "plan.dp=16", "plan.global_batch=32", "plan.sharding=hsdp", "plan.shard_group=8"),
    ),
    "llama3-8b-8xh100 ops eager": ("llama3-8b-8xh100", ("plan.recompute=ops", "runtime.launch=eager")),
    "llama3-8b-8xh100 one gpu": ("llama3-8b-8xh100", ("cluster.gpus=1", "plan.dp=1", "plan.sharding=none", "plan.global_batch=2")),
    "mpt-30b-64xa100 zero1": (
        "mpt-30b-64xa100",
        ("plan.sharding=zero1", "plan.tp=8", "plan.dp=8", "runtime.framework=megatron-deepspeed"),
    ),
    "llama3-8b-8xh100 offload": (
        "llama3-8b-8xh100",
        ("plan.recompute=none", "plan.offload.activations=16", "plan.offload.optimizer=host", "plan.offload.parameters=host"),
    ),
    "gpt3-175b-64 offload": ("gpt3-175b-64", ("plan.offload.activations=2", "plan.offload.optimizer=nvme")),
    "megatron-22b-8 on b200": ("megatron-22b-8", ("cluster=b200-ib", "cluster.gpus=8", "runtime.precision=bf16")),
}
"""Name -> catalogue job and overrides."""

CASES: dict[str, tuple[str, tuple[str, ...]]] = {**{name: (name, ()) for name in names("jobs")}, **VARIANTS}

HEADLINES = (
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tokens_per_day",
    "mfu",
    "hfu",
    "model_tflops_per_gpu",
    "hardware_tflops_per_gpu",
    "parameters",
    "fits",
    "error_of_parts",
    "provenance",
    "init_time_s",
    "days",
    "cost",
    "cost_per_step",
    "cost_parts",
    "energy_j",
    "energy_j_per_step",
    "energy_parts",
    "carbon_kg",
    "carbon_kg_per_step",
    "gpu_power_w",
    "node_power_w",
    "power_w",
)
"""Fields of a prediction that are watched as they are; None where the job or its cluster states no input for it."""


def figures(case: str) -> dict[str, Any]:
    """What is watched of a case: every figure that a report shows at its head, and what adds up to it. Seconds, shares, bytes,
    tokens, dollars, joules, watts, kg."""
    job, overrides = CASES[case]
    p = predict(check(load_job(job, overrides)))
    return {
        **{name: getattr(p, name) for name in HEADLINES},
        "breakdown": dict(sorted(p.breakdown.items())),
        "overlapped": dict(sorted(p.overlapped.items())),
        "memory_bytes": [stage.total for stage in p.memory],
        "activation_bytes": [stage.activations for stage in p.memory],
    }


def file_of(case: str) -> str:
    """Name of the case's file in `expected/`."""
    return case.replace(" ", "--") + ".json"
