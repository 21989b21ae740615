"""What the console log of any trainer of reinforcement learning says of a step's phases and lengths, under verl's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.formats.head import head_of
from windtunnel.formats.logs import read, recognises
from windtunnel.formats.logs.verl import read_steps
from windtunnel.formats.reading import Context

_NAMES = {
    "timing_s/gen": (
        "perf/rollout_time", "timing/generation", "generation", "exposed_generation", "timeperf/rollout", "time/step_generate",
        "generate", "Generate time", "generate_time",
    ),
    "timing_s/old_log_prob": (
        "perf/log_probs_time", "policy_and_reference_logprobs", "timeperf/recompute_logp", "time/old_log_probs",
    ),
    "timing_s/ref": ("perf/ref_log_probs_time", "timeperf/ref_logp", "time/ref_log_probs_values"),
    "timing_s/update_actor": (
        "perf/actor_train_time", "timing/ppo_train", "policy_training", "timeperf/train_step", "time/step_train", "policy_train",
        "Training time",
    ),
    "response_length/mean": ("completions/mean_length",),
}  # fmt: skip
"""verl's name of a figure, and those of slime, OpenRLHF, NeMo-RL, AReaL, ROLL, SkyRL, DeepSpeed-Chat and TRL in this order."""


def says_rollouts(figures: Mapping[str, float]) -> bool:
    """Whether the figures of a log have the time of rollouts, under any trainer's name."""
    return any(name in figures for name in ("timing_s/gen", *_NAMES["timing_s/gen"]))


def read_rl_steps(path: Path, text: str) -> dict[str, float]:
    """Medians over the steps, as `verl.read_steps` gives them; empty for a text that is no log of steps."""
    if said := read_steps(text):
        return said
    try:
        facts = read([path], Context()).facts if recognises(head_of(path)) else {}
    except FileError:
        return {}
    figures = facts.get("figures", {})
    said = {name: next((figures[own] for own in names if own in figures), 0.0) for name, names in _NAMES.items()}
    return {name: value for name, value in (("timing_s/step", facts.get("step_seconds", 0.0)), *said.items()) if value > 0}
