"""What the steps of a log say beside their median: regular peaks, drift, memory, TFLOP/s, and where it contradicts the job."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.prediction import Prediction
from windtunnel.records.run import Run
from windtunnel.spec import Job

PEAK = 1.2
"""A step this many times the median stands out."""
DRIFT = 0.03
"""Relative difference between the first and the last quarter of the steps from which they drift."""
APART = 0.05
"""Relative difference from which a logged figure contradicts the job."""


@dataclass(frozen=True)
class Peaks:
    """Steps that stand out: how many, seconds that the median one takes more, steps between two (0: at no regular distance), and
    the share of all time that they cost."""

    count: int
    seconds: float
    every: int
    share: float


@dataclass(frozen=True)
class LogFacts:
    """A log's own figures beside the prediction; NaN where the log does not say.

    `memory`: B of the fullest rank that reports; `tflops`: of a GPU; `tokens`: of a step; `drift`: the last quarter of the steps
    over the first; `flops`: FLOP of a step by the log's own count, over ours; `contradictions`: (name, log, job).
    `update`: name and seconds of the policy's update in a step of reinforcement learning; `rollouts`: the step generates text too.
    """

    peaks: Peaks | None
    drift: float
    memory: float
    expected_memory: float
    tflops: float
    expected_tflops: float
    tokens: float
    expected_tokens: float
    flops: float
    contradictions: tuple[tuple[str, str, str], ...]
    update: tuple[str, float] | None = None
    rollouts: bool = False


UPDATES = ("timing_s/update_actor", "perf/actor_train_time", "timing/ppo_train", "policy_training", "perf/train_time",
           "timeperf/train_step", "time/step_train")  # fmt: skip
"""What logs of reinforcement learning call the seconds of the policy's update: verl, slime, OpenRLHF, NeMo-RL, AReaL, ROLL."""
_ROLLOUTS = ("completions/mean_length", "timing_s/gen", "timing/generation", "generation", "perf/rollout_time", "timeperf/rollout",
             "time/step_generate", "time/step_rollout")  # fmt: skip
"""Figures of generated text, of which a job here has none."""


def update_of(run: Run) -> tuple[str, float] | None:
    """(name, seconds) of the policy's update in a step of reinforcement learning, which is what a job is; None in other logs."""
    for name in UPDATES:
        value = run.facts.get(name)
        if isinstance(value, (int, float)) and value > 0:
            return name, float(value)
    return None


def log_facts(run: Run, prediction: Prediction) -> LogFacts:
    """The facts of a run of steps beside the prediction of its job."""
    job, steps = prediction.job, run.steps
    memory = max((stage.allocated for stage in prediction.memory), default=float("nan"))
    return LogFacts(
        _peaks(steps.step.astype(float), steps.seconds),
        _drift(steps.seconds),
        _largest(steps.memory),
        float(memory),
        _middle(steps.tflops),
        prediction.model_tflops_per_gpu,
        _middle(steps.tokens),
        float(job.plan.global_batch * job.plan.seq),
        _middle(steps.tflops * steps.seconds) / (prediction.model_tflops_per_gpu * prediction.step_time_s),
        contradictions_of(run, job),
        update_of(run),
        any(name in run.facts for name in _ROLLOUTS),
    )


def contradictions_of(run: Run, job: Job) -> tuple[tuple[str, str, str], ...]:
    """Settings that the log states and the job has otherwise: (name in the log, its value, the job's)."""
    plan, found = job.plan, []
    ours: dict[str, float] = {
        "world_size": job.cluster.gpus,
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        "context_parallel_size": plan.cp,
        "expert_model_parallel_size": plan.ep,
        "data_parallel_size": job.dp,
        "micro_batch_size": plan.micro_batch,
        "global_batch_size": plan.global_batch,
        "seq_length": plan.seq,
    }
    for name in ("layers", "hidden", "heads", "experts"):
        logged = {"layers": "num_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "experts": "num_experts"}[name]
        value = getattr(job.model, name, None)
        if value is not None:
            ours[logged] = value
    for name, value in ours.items():
        logged_value = run.facts.get(name)
        if isinstance(logged_value, (int, float)) and not isinstance(logged_value, bool) and logged_value != value:
            found.append((name, f"{logged_value:g}", f"{value:g}"))
    return tuple(found)


def _peaks(numbers: Floats, seconds: Floats) -> Peaks | None:
    """Steps that stand out, without the first ones, in which a run warms up."""
    known = np.isfinite(seconds)
    numbers, seconds = numbers[known][2:], seconds[known][2:]
    if len(seconds) < 8:
        return None
    middle = float(np.median(seconds))
    high = seconds > PEAK * middle
    if not high.any() or high.mean() > 0.34:
        return None
    apart = np.diff(numbers[high])
    every = int(np.median(apart)) if len(apart) >= 2 and np.mean(apart == np.median(apart)) >= 0.7 else 0
    more = seconds[high] - middle
    return Peaks(int(high.sum()), float(np.median(more)), every, float(more.sum() / seconds.sum()))


def _drift(seconds: Floats) -> float:
    known = seconds[np.isfinite(seconds)][2:]
    if len(known) < 16:
        return float("nan")
    quarter = len(known) // 4
    return float(np.median(known[-quarter:]) / np.median(known[:quarter]))


def _largest(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else float("nan")


def _middle(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
