"""Our search beside Calculon's own, on its models and systems and over the same fields, one core each, in one run.

    python benchmarks/search_calculon.py FOLDER [CASE...]

FOLDER: a checkout of calculon-ai/calculon (caa4b11); it imports pandas and psutil. A case is MODEL:GPUS:BATCH:SYSTEM. Calculon's
search is that of `llm-optimal-execution -m`, called loop by loop. The whole of it takes hours, so that both searches are reduced:
REDUCED says how. Its winner becomes a job by `formats.calculon`; both winners are compared by our prediction, without the limit of
memory if its winner does not fit by ours. Ends with 1 if its winner is faster there than ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.formats import import_job
from windtunnel.formats.jobs.several import merge_texts
from windtunnel.search.api import search
from windtunnel.search.change import Change
from windtunnel.search.find import Search, plans_of
from windtunnel.search.objective import objectives
from windtunnel.search.outcome import PlanOutcome, outcome_of
from windtunnel.search.result import SearchResult
from windtunnel.search.space import Space
from windtunnel.search.workers import Here
from windtunnel.spec import Job
from windtunnel.spec.common import divisors

CASES = (
    "gpt3-175B:512:512:a100_80g",
    "gpt3-175B:512:512:h100_80g_nvl8",
    "megatron-1T:512:512:a100_80g",
    "megatron-1T:512:512:h100_80g_nvl8",
)
TPS, MOST_MICRO = (4, 8), 8
REDUCED = (
    f"Reduced in both: tp in {TPS}, micro batches up to {MOST_MICRO}, no offload. In Calculon also: tensor parallelism on its "
    "first network and the others on its second; without its variants p2p_rs_ag and pipe, which differ from rs_ag and ring in its "
    "model only."
)
BOTH = (False, True)


def main() -> int:
    folder, *cases = sys.argv[1:]
    sys.path.insert(0, folder)
    print(REDUCED)
    slower = 0
    for case in cases or CASES:
        model, gpus, batch, system = case.split(":")
        theirs = calculon(Path(folder), model, int(gpus), int(batch), system)
        job = job_of(Path(folder), model, system, theirs["execution"])
        space = Space(job, fields(job))
        begun = time.process_time()
        ours = search(space.job, space.fields, processes=1, explained=False)
        seconds = time.process_time() - begun
        its = outcome_of(job, Change(()), anyway=True)
        best = ours.best.outcome.step_time_s if its.fits else without_memory(space)
        slower += its.step_time_s < best
        show(case, theirs, job, its, ours, seconds)
        if not its.fits:
            print(f"  without the limit of memory: {best:.2f} s by ours", flush=True)
    return int(slower > 0)


def calculon(folder: Path, model: str, gpus: int, batch: int, system: str) -> dict[str, Any]:
    """Calculon's search in this process: its winner, executions, CPU seconds."""
    from calculon.llm import Llm, System  # type: ignore[import-not-found]
    from calculon.llm.optimal_execution import OptimalExecution  # type: ignore[import-not-found]

    app = Llm.Application(json.loads((folder / "models" / f"{model}.json").read_text()))
    table = json.loads((folder / "systems" / f"{system}.json").read_text())
    table["mem2"]["GiB"] = 0  # no offload
    syst = System(table)
    Llm.get_valid_microbatch_sizes = staticmethod(_small(Llm.get_valid_microbatch_sizes))
    sys.modules[OptimalExecution.__module__].pick = _picked()  # type: ignore[attr-defined]
    begun = time.process_time()
    best: list[Any] = []
    tried = good = 0
    for tp in Llm.get_all_tensor_parallelisms(gpus, app.hidden, app.attn_heads):
        if tp not in TPS:
            continue
        for pp in Llm.get_all_pipeline_parallelisms(gpus, tp, app.num_blocks):
            dp = Llm.get_data_parallelism(gpus, tp, pp)
            if dp > batch or batch % dp:
                continue
            for vpp in Llm.get_valid_pipeline_interleavings(app.num_blocks, pp):
                for recompute in ("full", "attn_only", "none"):
                    for sharded in (True, False) if dp > 1 else (False,):
                        for comm in ("ar", "rs_ag"):
                            args = (gpus, batch, "float16", app, syst, tp, pp, dp, vpp, batch, recompute, sharded, comm)
                            found = OptimalExecution.search(False, 1, False, *args, [True], True, True, True)
                            best = OptimalExecution.update_list(best, found[0], 1)
                            tried, good = tried + found[1], good + found[2]
    seconds = time.process_time() - begun
    return {"rate": best[0][0], "execution": best[0][1], "tried": tried, "good": good, "cpu_s": seconds}


def _small(sizes: Any) -> Any:
    def few(*args: Any) -> Iterator[int]:
        return (size for size in sizes(*args) if size <= MOST_MICRO)

    return few


def _picked() -> Any:
    """Calculon's `pick`, one network an axis and two overlaps: its loops ask for those of tp, pp and dp in turn."""
    asked = 0

    def pick(condition: bool, yes: Any, no: Any) -> Any:
        nonlocal asked
        values = yes if condition else no
        if isinstance(yes, range):
            asked += 1
            return values if not condition else [0] if asked % 3 == 1 else [yes[-1]]
        return [value for value in values if value != "pipe"]

    return pick


def job_of(folder: Path, model: str, system: str, execution: dict[str, Any]) -> Job:
    """Calculon's winner as a job on its system."""
    with tempfile.TemporaryDirectory() as out:
        plan = Path(out, "execution.json")
        plan.write_text(json.dumps(execution))
        job = import_job(
            merge_texts([str(folder / "models" / f"{model}.json"), str(plan), str(folder / "systems" / f"{system}.json")])
        ).job
    if job is None:
        raise SystemExit("Calculon's winner is no job")
    return job


def fields(job: Job) -> dict[str, tuple[Any, ...]]:
    """The fields of Calculon's search."""
    layers, gpus = job.model.layers, job.cluster.gpus
    return {
        "plan.tp": tuple(p for p in divisors(gpus) if p in TPS and job.model.heads % p == 0),
        "plan.pp": tuple(p for p in divisors(gpus) if layers % p == 0),
        "plan.vpp": tuple(divisors(layers)),
        "plan.micro_batch": tuple(b for b in divisors(job.plan.global_batch) if b <= MOST_MICRO),
        "plan.recompute": ("none", "selective", "full"),
        "plan.sharding": ("none", "zero1"),
        "plan.sequence_parallel": BOTH,
        "runtime.overlap_tp": BOTH,
        "runtime.overlap_grad_reduce": BOTH,
    }


def without_memory(space: Space) -> float:
    """Least step time of all plans, whether they fit or not: the fair opponent of a winner that does not."""
    plans = plans_of([space], objectives("time"))
    ranked, _ = Search(plans, objectives("time"), Here(plans.jobs, 0.0)).run(np.arange(len(plans)), anyway=True)
    return ranked[0].outcome.step_time_s


def show(case: str, theirs: dict[str, Any], job: Job, its: PlanOutcome, ours: SearchResult, seconds: float) -> None:
    plan, best, of = job.plan, ours.best, ours.certificate
    batch = plan.global_batch
    print(case)
    tried, took = theirs["tried"], theirs["cpu_s"]
    print(f"  Calculon   {tried:>9,} plans ({theirs['good']:,} run) in {took:7.1f} CPU s: {tried / took:>8,.0f} a second")
    rate = of.plans / seconds
    print(f"  windtunnel {of.plans:>9,} plans ({of.predicted:,} predicted) in {seconds:7.1f} CPU s: {rate:>8,.0f} a second")
    missing = "" if its.fits else f", lacks {its.missing / 2**30:.1f} GiB"
    print(f"  its winner: {batch / theirs['rate']:.2f} s by its model, {its.step_time_s:.2f} s by ours{missing}: {_said(job)}")
    print(f"  our winner: {best.outcome.step_time_s:.2f} s by ours: {' '.join(best.change.without_no_ops(job).sets)}", flush=True)


def _said(job: Job) -> str:
    plan, runtime = job.plan, job.runtime
    names = ("tp", "pp", "vpp", "micro_batch", "recompute", "sharding", "sequence_parallel")
    text = [f"{name}={getattr(plan, name)}" for name in names]
    return " ".join([*text, f"overlap_tp={runtime.overlap_tp}", f"overlap_grad_reduce={runtime.overlap_grad_reduce}"])


if __name__ == "__main__":
    sys.exit(main())
