"""Search against brute force: on each space every plan is predicted, and the search has to find one that is no slower.

    python benchmarks/search_exact.py [NAME...]

Prints for each space its plans, how many of them the search predicted, both best steps, and how often and how far the bound was
above a prediction (it never may be). Ends with 1 if any differs. All spaces take about half an hour on two cores.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from windtunnel.search.api import search
from windtunnel.search.find import plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.outcome import PlanOutcome, outcome_of
from windtunnel.search.space import BY_SPEED, EVEN, LIGHT_ENDS, LIGHT_LAST, WITH_TP, Space
from windtunnel.spec import load_job

Fields = dict[str, tuple[Any, ...]]

FLAGS = (False, True)


def plan(**fields: tuple[Any, ...]) -> Fields:
    """Fields of the plan; sequence parallelism goes with tp."""
    return {"plan.sequence_parallel": (WITH_TP,)} | {f"plan.{name}": values for name, values in fields.items()}


OVERLAP: Fields = {"runtime.overlap_grad_reduce": FLAGS, "runtime.overlap_param_gather": FLAGS}
DEGREES = plan(tp=(1, 2, 4, 8), pp=(1, 2, 4, 8), micro_batch=(1, 2, 4), recompute=("none", "selective", "full"))
VIRTUAL = DEGREES | plan(vpp=(1, 2, 4), sharding=("none", "zero1"), stages=(EVEN, LIGHT_ENDS))
SHARDED = plan(
    tp=(1, 2, 4, 8),
    cp=(1, 2),
    micro_batch=(1, 2, 4, 8),
    recompute=("none", "ops", "full"),
    sharding=("fsdp", "hsdp", "zero3", "zero2", "zero1"),
)
EXPERTS = plan(
    tp=(1, 2, 4),
    pp=(1, 2, 4),
    vpp=(1, 2, 4),
    ep=(1, 2, 4, 8),
    etp=(1, 2),
    micro_batch=(1, 2),
    recompute=("none", "full"),
    sharding=("none", "zero1"),
)
SMALL = ["plan.global_batch=64", "cluster.gpus=32"]

SPACES: dict[str, tuple[str, list[str], Fields]] = {
    "dense 70B on 64 H100": ("llama2-70b-64xh100", ["plan.global_batch=256"], VIRTUAL | plan(schedule=("auto", "breadth-first"))),
    "dense 70B, overlaps": ("llama2-70b-64xh100", ["plan.global_batch=128"], DEGREES | plan(vpp=(1, 2)) | OVERLAP),
    "dense 175B on 64 A100": ("gpt3-175b-64", [], VIRTUAL | plan(recompute_layers=(None, 1, 4), sharding=("zero1",))),
    "dense 22B on 8 A100": (
        "megatron-22b-8",
        ["plan.global_batch=32"],
        VIRTUAL | plan(schedule=("auto", "gpipe", "zb-h1", "zb-h2")) | OVERLAP,
    ),
    "split backward passes": (
        "llama2-70b-64xh100",
        ["plan.global_batch=128"],
        DEGREES
        | plan(vpp=(1, 2, 4), stages=(EVEN, LIGHT_LAST), schedule=("auto", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipev")),
    ),
    "fsdp 8B on 32 H100": ("llama3-8b-8xh100", SMALL, SHARDED | OVERLAP),
    "fsdp 8B on 8 H100": ("llama3-8b-8xh100", ["plan.global_batch=64"], SHARDED | plan(pp=(1, 2, 4)) | OVERLAP),
    "fsdp 30B on 64 A100": ("mpt-30b-64xa100", [], SHARDED | OVERLAP),
    "long context 131k": (
        "llama3-8b-8xh100",
        [*SMALL, "plan.seq=131072"],
        plan(
            tp=(1, 2, 4, 8),
            cp=(1, 2, 4, 8),
            cp_kind=(None, "p2p", "all_gather", "a2a"),
            pp=(1, 2, 4),
            micro_batch=(1,),
            recompute=("none", "ops", "full"),
            sharding=("fsdp", "hsdp", "zero1", "zero3"),
        ),
    ),
    "long context 32k, 70B": (
        "llama2-70b-64xh100",
        ["plan.seq=32768", "plan.global_batch=64"],
        plan(
            tp=(1, 2, 4, 8),
            cp=(1, 2, 4, 8),
            cp_kind=(None, "p2p", "a2a"),
            pp=(1, 2, 4, 8),
            vpp=(1, 2, 4),
            micro_batch=(1, 2),
            recompute=("none", "full"),
            sharding=("zero1",),
        ),
    ),
    "mixture 8x7B": ("mixtral-8x7b-64xh100", [], EXPERTS),
    "mixture 8x7B, overlap": (
        "mixtral-8x7b-64xh100",
        [],
        plan(
            tp=(1, 2),
            pp=(1, 2, 4),
            vpp=(1, 2, 4),
            ep=(2, 4, 8),
            micro_batch=(1, 2),
            recompute=("none", "selective", "full"),
            sharding=("none", "zero1"),
        )
        | {"runtime.moe_a2a_overlap": FLAGS}
        | OVERLAP,
    ),
    "mixture 8x7B, schedules": (
        "mixtral-8x7b-64xh100",
        [],
        plan(
            tp=(1, 2),
            pp=(2, 4, 8),
            vpp=(1, 2),
            ep=(1, 2, 4, 8),
            micro_batch=(1, 2),
            recompute=("none", "full"),
            schedule=("auto", "zb-h1", "zbv", "dualpipe", "dualpipev", "gpipe", "breadth-first"),
            sharding=("none", "zero1"),
        ),
    ),
    "host offload of the optimizer": ("llama2-70b-64xh100", ["plan.global_batch=64", "plan.offload.optimizer=host"], VIRTUAL),
    "host offload of activations": (
        "llama2-70b-64xh100",
        ["plan.global_batch=64"],
        DEGREES | plan(vpp=(1, 2), sharding=("none", "zero1"), **{"offload.activations": (0, 1, 2, 4)}),
    ),
    "zero 1 to 3 on DeepSpeed": (
        "bloom-176b-384",
        ["cluster.gpus=96", "plan.global_batch=384"],
        DEGREES | plan(sharding=("none", "zero1", "zero2"), schedule=("auto", "gpipe"), recompute_layers=(None, 1, 2)),
    ),
    "two kinds of GPUs": (
        "llama2-70b-64xh100",
        ["plan.global_batch=64", "unequal.mixed=[{nodes=[0,1,2,3],gpu='a100-sxm-80gb'}]"],
        DEGREES | plan(vpp=(1, 2), sharding=("none", "zero1"), stages=(EVEN, BY_SPEED, LIGHT_ENDS)),
    ),
    "slow nodes": (
        "llama3-8b-8xh100",
        [*SMALL, "unequal.slow=[{nodes=[1],factor=1.3},{nodes=[2],clock=0.7}]"],
        plan(
            tp=(1, 2, 4, 8),
            pp=(1, 2, 4, 8),
            vpp=(1, 2, 4),
            micro_batch=(1, 2, 4),
            recompute=("none", "full"),
            sharding=("fsdp", "zero1"),
            stages=(EVEN, BY_SPEED, LIGHT_ENDS),
        ),
    ),
    "fp8 70B": ("llama2-70b-64xh100", ["plan.global_batch=128", "runtime.precision=fp8"], VIRTUAL),
    "tensor-parallel overlap": (
        "llama2-70b-64xh100",
        ["plan.global_batch=128"],
        DEGREES
        | plan(vpp=(1, 2, 4))
        | {"runtime.overlap_tp": FLAGS, "runtime.overlap_tp_dgrad": FLAGS, "runtime.overlap_p2p": FLAGS},
    ),
    "PCIe cluster": (
        "llama3-8b-8xh100",
        ["cluster=a100-pcie", "cluster.gpus=64", "plan.global_batch=128"],
        SHARDED | plan(pp=(1, 2, 4)) | {"runtime.overlap_grad_reduce": FLAGS},
    ),
    "launch-bound small model": (
        "megatron-22b-8",
        [
            "model.hidden=1024",
            "model.ffn=4096",
            "model.heads=16",
            "model.layers=24",
            "plan.global_batch=64",
            "runtime.framework=megatron-deepspeed",
        ],
        DEGREES
        | plan(sharding=("none", "zero1"), schedule=("auto", "gpipe"), stages=(EVEN, LIGHT_LAST, LIGHT_ENDS))
        | {"runtime.overlap_grad_reduce": FLAGS},
    ),
}
"""Name -> (job, overrides, open fields)."""


def _all(task: tuple[Any, list[Any]]) -> list[PlanOutcome]:
    job, changes = task
    return [outcome_of(job, change) for change in changes]


def main(names: list[str]) -> int:
    wrong = 0
    for name, (source, overrides, fields) in SPACES.items():
        if names and not any(word in name for word in names):
            continue
        space = Space(load_job(source, overrides), fields)
        begun = time.perf_counter()
        result = search(space.job, space.fields, processes=2, explained=False)
        searched = time.perf_counter() - begun
        plans = plans_of([space], objectives("time"))
        numbers = list(range(len(plans)))
        parts = [numbers[at : at + 25] for at in range(0, len(numbers), 25)]
        begun = time.perf_counter()
        with ProcessPoolExecutor(2) as pool:
            tasks = [(space.job, [plans.change(number) for number in part]) for part in parts]
            outcomes = [outcome for part in pool.map(_all, tasks) for outcome in part]
        brute = time.perf_counter() - begun
        steps = np.array([o.step_time_s if o.fits else np.nan for o in outcomes])
        large = np.array([not o.refused and o.missing > 0.0 for o in outcomes])
        ratio = plans.seconds / steps
        above = int((ratio > 1.0 + 1e-9).sum()) + int((~plans.may_fit & np.isfinite(steps)).sum())
        best, found = float(np.nanmin(steps)), result.ranked[0].outcome.step_time_s
        ok = found <= best * (1.0 + 1e-12) and not above
        wrong += not ok
        of = result.certificate
        print(
            f"{'ok  ' if ok else 'BAD '} {name}: {len(plans):,} plans, {int(np.isfinite(steps).sum()):,} fit, "
            f"{int(large.sum()):,} too large; "
            f"best {best:.6f} s by brute force, {found:.6f} s by the search, which predicted {of.predicted}; bound/step median "
            f"{np.nanmedian(ratio):.3f}, least {np.nanmin(ratio):.3f}, above {above}; {searched:.1f} s against {brute:.0f} s",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
