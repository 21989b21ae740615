"""Modes: where and when the rollout of a step runs. What the rest of the room knows of a mode, and the list of modes.

A mode is one file of `modes/` and one line of MODES.
"""

from __future__ import annotations

from typing import Any, ClassVar

from windtunnel.base.registry import Registry


class RLMode:
    """A mode. Its class variables say what others have to know of it."""

    about: ClassVar[str]
    """Where and when the rollout runs, in a line."""
    shares_gpus: ClassVar[bool] = False
    """Whether the rollout has the GPUs of the update, in turn with it."""
    runs_ahead: ClassVar[bool] = False
    """Whether the rollout goes on over several steps, so that a page shows windows between syncs and not one batch."""
    takes_turns: ClassVar[bool] = True
    """Whether a step is the sum of its phases: which published steps are like it."""
    old_logprobs: ClassVar[bool] = True
    """Whether the policy's log-probabilities are computed again before updates, unless the job says otherwise."""
    divided: ClassVar[str] = ""
    """The mode in which divisions of the GPUs are tried; by default itself."""
    fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of `PostTraining` that no other mode has."""

    def check(self, rl: Any, gpus: int) -> None:
        """PlanError for fields of a `PostTraining` that contradict this mode on `gpus` GPUs."""
        return None


MODES: Registry[RLMode] = Registry(
    "rl_modes",
    "mode",
    {
        "colocated": "rl.modes.colocated:COLOCATED",
        "split": "rl.modes.split:SPLIT",
        "one_step_off": "rl.modes.one_step_off:ONE_STEP_OFF",
        "async": "rl.modes.asynchronous:ASYNCHRONOUS",
    },
)
