"""Limits and timers of the processes beside a job, from an environment variable: for tests, and for a site's own limits."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from windtunnel.base.errors import SpecError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VARIABLE = "WINDTUNNEL_FLEET_TIMERS"
"""JSON: the fields to change, by the name of the policy: {"collect": {"segment_seconds": 1.2}, "ship": {…}, "beside": {…}}."""

P = TypeVar("P", bound="DataclassInstance")


def apply_timers(policy: P, name: str, variables: Mapping[str, str] = os.environ) -> P:
    """`policy` with the fields that the variable changes for `name`. SpecError for a text that is no JSON, and for other fields."""
    text = variables.get(VARIABLE)
    if not text:
        return policy
    try:
        wanted = json.loads(text).get(name, {})
        changes = {field: float(value) for field, value in wanted.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise SpecError(VARIABLE, text, 'JSON of numbers by policy, such as {"collect": {"segment_seconds": 60}}') from error
    known = {
        field.name: type(getattr(policy, field.name))
        for field in dataclasses.fields(policy)
        if isinstance(getattr(policy, field.name), (int, float))
    }
    strange = sorted(set(changes) - set(known))
    if strange:
        raise SpecError(VARIABLE, f"{name}: {strange[0]}", f"one of {', '.join(known)}")
    return dataclasses.replace(policy, **{field: known[field](value) for field, value in changes.items()})
