"""`windtunnel rl-predict JOB`."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.rl.options import RLPredictOptions


def answer_rl(asked: RLPredictOptions, outputs: Outputs) -> None:
    """The answer for a job, where `outputs` wants it."""
    from windtunnel.api.rl import rl_predict, rl_splits
    from windtunnel.rl import RLStep
    from windtunnel.rl.sheet import splits_sheet, step_sheet

    given = (asked.job, asked.on, asked.overrides, asked.log, outputs.wants_detail)
    if not asked.splits:
        with show_spinner("simulating the rollout"):
            step = rl_predict(*given)
        outputs.show(step_sheet(step), step.as_dict)
        return
    with show_spinner("trying divisions"):
        tried = rl_splits(*given)
    table = [
        {"rollout_gpus": whole.rl.rollout.gpus, "step": found.as_dict() if isinstance(found, RLStep) else str(found)}
        for whole, found in tried
    ]
    best = tried[0][1]
    if outputs.wants_detail:
        if not isinstance(best, RLStep):
            raise best
        replace(outputs, json=None, csv=None, quiet=True).show(step_sheet(best, tried), {})
    replace(outputs, html=None, sheet=None).show(splits_sheet(tried), table)
