"""A prediction as JSON: stable keys, the same bytes for equal predictions, no values outside JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from windtunnel.base.json_text import json_text, plain_data
from windtunnel.goodput.answer import whole_run
from windtunnel.network.simulate.traffic import Traffic
from windtunnel.predict.prediction import Prediction

SCHEMA = "windtunnel.prediction/1"
"""Version; increases when a key changes its meaning or is removed, not for new keys."""


def to_json(prediction: Prediction, detail: bool = False) -> dict[str, Any]:
    """Plain data of `prediction`: its fields by name, SI units, `schema`, and `job` as `load` reads it back.

    `unequal` is there where ranks differ, `faults` where the fabric states some, `sharing` beside other
    traffic, `saving` where storage is on the fabric, `whole_run` where the job states `reliability`.
    Kernel by kernel the timeline is in the trace only. `detail` adds the timeline's spans and the memory curves, which grow with
    micro batches times stages, and the fabric's drawing. Numbers that are not finite become null.
    """
    answer = {f.name: getattr(prediction, f.name) for f in fields(Prediction)}
    del answer["kernel_timeline"]
    for part in ("unequal", "faults", "sharing", "saving"):
        if answer[part] is None:
            del answer[part]
    if not detail:
        del answer["timeline"]
    table: dict[str, Any] = plain_data(answer)
    if not detail:
        for stage in table["memory"]:
            stage.pop("curve", None)
        _drop_drawing(table["traffic"] or {})
    if (run := whole_run(prediction)) is not None:
        table["whole_run"] = plain_data(run)
    table["schema"] = SCHEMA
    return table


def traffic_table(traffic: Traffic) -> dict[str, Any]:
    """Plain data of what a run did to the links, without its drawing."""
    table: dict[str, Any] = plain_data(traffic)
    _drop_drawing(table)
    return table


def _drop_drawing(traffic: dict[str, Any]) -> None:
    for drawn in (traffic, traffic.get("over_time") or {}):
        for drawing in ("boxes", "edges"):
            drawn.pop(drawing, None)


def dumps(data: Prediction | Mapping[str, Any], indent: int | None = 2) -> str:
    """JSON text with sorted keys; floats in their shortest exact form."""
    return json_text(to_json(data) if isinstance(data, Prediction) else data, indent)
