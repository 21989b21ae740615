"""Results as plain data."""

from __future__ import annotations

from typing import Any


def as_dict(result: Any) -> Any:
    """What the command of a result writes with --json: dictionaries, lists, numbers and text with stable keys, SI units.

    `result`: of any function of `windtunnel` and of its groups, a job or another noun, or a list of them. Numbers that are not
    finite become None; what is none of these becomes its text.
    """
    from windtunnel.base.json_text import plain_data

    return plain_data(_data_of(result))


def _data_of(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [_data_of(one) for one in result]
    if isinstance(result, dict):
        return {key: _data_of(value) for key, value in result.items()}
    if hasattr(result, "as_dict"):
        return result.as_dict()
    writer = _writer_of(type(result))
    return writer(result) if writer is not None else result


def _writer_of(kind: type) -> Any:
    """What writes a result whose room is below the reports; None for one that is plain already."""
    name = f"{kind.__module__.removeprefix('windtunnel.')}.{kind.__name__}"
    if name in ("api.answer.Answer", "predict.prediction.Prediction"):
        from windtunnel.api.json import to_json

        return to_json
    if name == "search.budget.planner.Planned":
        from windtunnel.search.budget.data import as_dict as plan_data

        return plan_data
    if name == "goodput.answer.Goodput":
        from windtunnel.goodput.answer import run_data

        return run_data
    if name == "fleet.api.JudgedRun":
        from windtunnel.runs.fleet.show import fleet_dict

        return lambda run: fleet_dict(run.recorded, run.judgement, run.hang, run.alarms)
    return None
