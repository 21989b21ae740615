"""Sentences that say why the step takes as long as it does and what to try first, all from the prediction's numbers.

A sentence that names a change says at most what could be gained: the seconds that the part costs now. Whether the change pays off
is for another prediction to say.
"""

from __future__ import annotations

from windtunnel.predict.category import Category, idle_key
from windtunnel.predict.prediction import Prediction
from windtunnel.report import words as say
from windtunnel.report.parts import (
    BUBBLE,
    COMMUNICATION,
    COMPUTE,
    CONTENTION,
    DATA,
    HOST,
    MEMORY_PARTS,
    OFFLOAD,
    OPTIMIZER,
    RECOMPUTE,
    WAITING,
    Part,
    axis_of,
    parts_of,
)

WORTH_SAYING = 0.02
"""Parts below this share of the step are not worth a sentence."""


def reasons(prediction: Prediction, limit: int = 3) -> list[str]:
    """At most `limit` sentences, the most important first: memory that does not fit, then the largest losses."""
    found = _memory(prediction)
    losses = [p for p in parts_of(prediction.breakdown, prediction.step_time_s) if p.group != COMPUTE and p.share >= WORTH_SAYING]
    for part in sorted(losses, key=lambda p: -p.seconds):
        if sentence := _loss(prediction, part):
            found.append(sentence)
    found += _imbalance(prediction)
    if not found:
        share = sum(p.share for p in parts_of(prediction.breakdown, prediction.step_time_s) if p.group == COMPUTE)
        found.append(
            f"{say.percent(share, 0)} of the step is computation: faster kernels, a lower precision or a faster GPU are left."
        )
    return found[:limit]


def _memory(prediction: Prediction) -> list[str]:
    if prediction.fits or not prediction.memory:
        return []
    worst = max(prediction.memory, key=lambda stage: stage.missing)
    if worst.short != "GPU memory":
        return [f"Stage {worst.stage} lacks {say.size(worst.missing)} of {worst.short} for each GPU: offload less."]
    largest = max(MEMORY_PARTS, key=lambda part: float(getattr(worst, part)))
    return [
        f"Stage {worst.stage} lacks {say.size(worst.missing)} of memory; the largest part is {largest} with "
        f"{say.size(getattr(worst, largest))}. {_memory_remedy(prediction, largest)}"
    ]


def _memory_remedy(prediction: Prediction, largest: str) -> str:
    plan = prediction.job.plan
    if largest in ("activations", "logits"):
        if largest == "activations" and plan.recompute != "full":
            stronger = "selective" if plan.recompute == "none" else "full"
            return f"Try plan.recompute={stronger}" + (", or a smaller plan.micro_batch." if plan.micro_batch > 1 else ".")
        return "Try a smaller plan.micro_batch." if plan.micro_batch > 1 else "Try a larger plan.tp or plan.cp."
    if largest in ("optimizer", "gradients", "weights"):
        if plan.sharding == "none" and prediction.job.dp * plan.cp > 1:
            kind = "zero1" if largest == "optimizer" else "zero3"
            return f"Try plan.sharding={kind}: {prediction.job.dp * plan.cp} ranks hold the same copy."
        return "Try a larger plan.tp or plan.pp: more GPUs hold one copy of the model."
    return "Try a larger plan.tp or plan.pp."


def _loss(prediction: Prediction, part: Part) -> str:
    job, plan, runtime = prediction.job, prediction.job.plan, prediction.job.runtime
    cost = f"{say.seconds(part.seconds)}, {say.percent(part.share)} of the step"
    if part.group == BUBBLE:
        advice = [f"more micro batches (now {job.micro_batches} over {plan.pp} stages; raise plan.global_batch)"]
        if plan.schedule_name in ("gpipe", "1f1b"):
            advice.append("virtual stages (plan.vpp)")
        return f"The pipeline bubble costs {cost}: try {' or '.join(advice)}."
    if part.group == WAITING:
        remedy = {
            "other_stages": " Try another split of the layers (plan.stages).",
            "slower_ranks": f" It waits for {prediction.unequal.culprit}." if prediction.unequal else "",
            "slowest_gpu": f" All {job.cluster.gpus:,} GPUs wait for the slowest: find and replace it.",
        }
        return f"{part.label[:1].upper()}{part.label[1:]} costs {cost}.{remedy.get(part.key, '')}"
    if part.group == CONTENTION:
        return f"Computation runs slower beside overlapped communication, which costs {cost}."
    if part.group == OFFLOAD:
        away = "plan.offload.activations" if plan.offload.activations else "plan.offload.optimizer"
        return f"Exposed offload copies cost {cost}: offload less ({away})."
    if part.group == COMMUNICATION:
        return _communication(prediction, part, cost)
    if part.group == HOST:
        mode = {"eager": "runtime.launch=compile or cuda_graph", "compile": "runtime.launch=cuda_graph"}.get(runtime.launch, "")
        return f"The GPU waits for the host during {cost}: try {mode or 'larger micro batches, so that kernels last longer'}."
    if part.group == DATA:
        share = "one reader a node (runtime.data.reader=node)" if runtime.data.reader != "node" else "more runtime.data.workers"
        ahead = "runtime.data.overlap=step" if runtime.data.overlap != "step" else "a deeper runtime.data.prefetch, or more workers"
        return f"The step waits {cost} for its data: try {ahead}, or {share}."
    if part.group == RECOMPUTE:
        fitting = all(s.total <= 0.8 * s.capacity for s in prediction.memory) and bool(prediction.memory)
        hint = "memory has room: try a weaker plan.recompute" if fitting else "memory is nearly full, so it may be needed"
        return f"Recomputing activations costs {cost}; {hint}."
    if part.key == idle_key(Category.CPU_UPDATE):
        sooner = "" if plan.offload.overlap else "plan.offload.overlap=true, or "
        return f"The update by the CPU costs {cost}: try {sooner}a smaller plan.offload.optimizer_fraction."
    if part.group == OPTIMIZER:
        if plan.sharding == "none" and job.dp * plan.cp > 1:
            return f"The optimizer costs {cost}: plan.sharding=zero1 splits it over {job.dp * plan.cp} ranks."
        return f"The optimizer costs {cost}."
    return f"{part.label[:1].upper()}{part.label[1:]} costs {cost}."


def _communication(prediction: Prediction, part: Part, cost: str) -> str:
    plan, runtime = prediction.job.plan, prediction.job.runtime
    axis = axis_of(part.key)
    what = f"Exposed communication ({part.label.removeprefix('exposed ')}) costs {cost}"
    advice = ""
    if axis == "tp":
        inside = prediction.job.cluster.node.scale_up.size
        if plan.tp > inside:
            advice = f"plan.tp={plan.tp} leaves the scale-up domain of {inside} GPUs; keep it inside"
        elif not runtime.overlap_tp:
            advice = "try runtime.overlap_tp=true, or a smaller plan.tp if memory allows"
        else:
            advice = "try a smaller plan.tp if memory allows"
    elif axis == "dp":
        advice = "try runtime.overlap_grad_reduce=true" if not runtime.overlap_grad_reduce else "try a larger plan.global_batch"
    elif axis == "shard":
        advice = "try runtime.overlap_param_gather=true" if not runtime.overlap_param_gather else "try a smaller plan.shard_group"
    elif axis == "pp":
        advice = "try runtime.overlap_p2p=true" if not runtime.overlap_p2p else "try fewer virtual stages (plan.vpp)"
    elif axis == "cp":
        advice = "try a smaller plan.cp if memory allows"
    return f"{what}: {advice}." if advice else f"{what}."


def _imbalance(prediction: Prediction) -> list[str]:
    """Stages whose computation differs: the slowest sets the pace of a full pipeline."""
    if len(prediction.by_stage) < 2:
        return []
    busy = [sum(p.seconds for p in parts_of(stage, 1.0) if p.group in (COMPUTE, RECOMPUTE)) for stage in prediction.by_stage]
    mean, slowest = sum(busy) / len(busy), max(busy)
    if mean <= 0.0 or slowest / mean - 1.0 < 0.05:
        return []
    stage = busy.index(slowest)
    return [
        f"Stage {stage} computes {say.percent(slowest / mean - 1.0, 0)} longer than the average stage "
        f"({say.seconds(slowest)} against {say.seconds(mean)}): try another plan.stages."
    ]
