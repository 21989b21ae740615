"""A prediction as JSON: stable keys, the same bytes for equal predictions, no values outside JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from windtunnel.predict.prediction import Prediction
from windtunnel.report.whole_run import whole_run

SCHEMA = "windtunnel.prediction/1"
"""Version; increases when a key changes its meaning or is removed, not for new keys."""


def to_json(prediction: Prediction, detail: bool = False) -> dict[str, Any]:
    """Plain data of `prediction`: its fields by name, SI units, `schema`, and `job` as `load` reads it back.

    `unequal` is there where ranks differ, `whole_run` where the job states `reliability`. Kernel by kernel the timeline is in
    the trace only. `detail` adds the timeline's spans and the memory curves, which grow with micro batches times stages, and
    the fabric's drawing. Numbers that are not finite become null.
    """
    answer = {f.name: getattr(prediction, f.name) for f in fields(Prediction)}
    del answer["kernel_timeline"]
    if prediction.unequal is None:
        del answer["unequal"]
    if not detail:
        del answer["timeline"]
    plain: dict[str, Any] = _plain(answer)
    if not detail:
        for stage in plain["memory"]:
            stage.pop("curve", None)
        for drawing in ("boxes", "edges"):
            (plain["traffic"] or {}).pop(drawing, None)
    if (run := whole_run(prediction)) is not None:
        plain["whole_run"] = _plain(run)
    plain["schema"] = SCHEMA
    return plain


def dumps(data: Prediction | Mapping[str, Any], indent: int | None = 2) -> str:
    """JSON text with sorted keys; floats in their shortest exact form."""
    plain = to_json(data) if isinstance(data, Prediction) else _plain(data)
    return json.dumps(plain, sort_keys=True, indent=indent, allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json", exclude_none=True))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, Sequence):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else None  # -0.0 equals 0.0, so both are written the same
    if isinstance(value, int):
        return value
    return str(value)
