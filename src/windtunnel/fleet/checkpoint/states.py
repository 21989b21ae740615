"""Conversion between a job's state and one nested dictionary whose names do not depend on the parallel plan. What loops of
frameworks keep beside weights and moments, as entries of a checkpointer's state.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.pickles import ArrayUnpickler

OPTIONS = "param_groups"


class NamedOptions(dict[str, Any]):
    """State of an optimizer with the options stored per parameter name, because the parameter groups differ between pipeline
    stages. The names are those of torch's `flatten_optimizer_state_dict`. `groups`: parameter names of this rank's groups; `own`:
    their options before loading.
    """

    def __init__(self, collected: dict[str, Any]) -> None:
        self.groups: list[list[str]] = [list(group["params"]) for group in collected[OPTIONS]]
        self.own = {
            name: {key: value for key, value in group.items() if key != "params"}
            for group in collected[OPTIONS]
            for name in group["params"]
        }
        super().__init__(state=collected["state"], **{OPTIONS: {name: dict(options) for name, options in self.own.items()}})

    def drop_missing_options(self, key: str, known: Iterable[str]) -> None:
        """Removes options that the checkpoint lacks for parameters that it has: it was saved by another version of torch. `known`:
        names in the checkpoint; those of this optimizer are under `key`.
        """
        there = set(known)
        for name, options in self[OPTIONS].items():
            missing = [one for one in options if f"{key}.{OPTIONS}.{name}.{one}" not in there]
            if len(missing) < len(options):
                for one in missing:
                    del options[one]

    def with_param_groups(self) -> dict[str, Any]:
        """The state as torch loads it. SpecError if parameters of one group were saved with different options."""
        groups = []
        for names in self.groups:
            collected = [{**self.own[name], **self[OPTIONS][name]} for name in names]
            for name, one in zip(names, collected, strict=True):
                wrong = next((key for key in one if not _equal_values(one[key], collected[0][key])), None)
                if wrong is not None:
                    raise SpecError(
                        "state", f"{wrong} of {name}: {one[wrong]}", f"{collected[0][wrong]}, as {names[0]} of its group",
                        "Make the optimizer with the groups that were saved.",
                    )  # fmt: skip
            groups.append({**(collected[0] if collected else {}), "params": names})
        return {"state": self["state"], OPTIONS: groups}


def _equal_values(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else bool(one == other)


@dataclass(frozen=True)
class PerRank:
    """State that is separate for each rank, such as random number generators. A rank that the saving job did not have loads that of
    `rank` modulo its world.
    """

    of: Any


class RandomState:
    """State of the random number generators of Python, numpy, torch and, if there is one, this rank's GPU."""

    def state_dict(self) -> dict[str, Any]:
        """The current states."""
        numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
        plain = [one.tolist() if hasattr(one, "tolist") else one for one in numpy] if numpy is not None else None
        host = json.dumps({"python": random.getstate(), "numpy": plain}).encode()
        collected = {"host": host, "torch": torch.get_rng_state()}
        return {**collected, "cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else collected

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the states."""
        raw = state["host"]
        if raw.startswith(b"{"):
            host = json.loads(raw)
        else:  # a pickle, as releases until 0.2 saved it
            host = dict(zip(("python", "numpy"), ArrayUnpickler(io.BytesIO(raw)).load(), strict=True))
        version, words, gauss = host["python"]
        random.setstate((version, tuple(words), gauss))
        if host["numpy"] is not None:
            import numpy as np

            name, keys, *rest = host["numpy"]
            np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
        torch.set_rng_state(state["torch"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"])


def collect_state(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """The values of `state` as dictionaries: models and their optimizers by parameter name, others by their `state_dict`, tensors
    and plain values unchanged.
    """
    collected: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, PerRank):
            collected[rank_key(key, rank)] = _state_value(value.of, state)
        else:
            collected[key] = _state_value(value, state)
    return collected


def rank_key(key: str, rank: int) -> str:
    """The name under which a rank's own state is saved."""
    return f"{key}.rank{rank}"


def _state_value(value: Any, state: dict[str, Any]) -> Any:
    if isinstance(value, torch.nn.Module):
        return get_model_state_dict(value)
    if isinstance(value, torch.optim.Optimizer) and (model := _model_of(value, state.values())) is not None:
        return NamedOptions(_optimizer_state(model, value))
    return value.state_dict() if hasattr(value, "state_dict") else value


def _optimizer_state(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state by parameter name. PyTorch makes the state of one that has not stepped by a step without gradients, and
    counts it: Adam would then correct its averages as if it had stepped once more, and a job that saves would differ from others.
    So that state is told, with its counter at 0, and not left behind.
    """
    fresh = not optimizer.state
    named = get_optimizer_state_dict(model, optimizer)
    if fresh:
        for state in optimizer.state.values():
            if "step" in state:
                state["step"] = state["step"].zero_() if isinstance(state["step"], torch.Tensor) else 0
        named = get_optimizer_state_dict(model, optimizer)
        optimizer.state.clear()
    return dict(named)


def _model_of(optimizer: torch.optim.Optimizer, values: Iterable[Any]) -> Any:
    """The module among `values` that has the optimizer's parameters."""
    wanted = {id(one) for group in optimizer.param_groups for one in group["params"]}
    models = (value for value in values if isinstance(value, torch.nn.Module))
    return next((one for one in models if wanted <= {id(parameter) for parameter in one.parameters()}), None)


def apply_state(state: dict[str, Any], loaded: dict[str, Any], keys: dict[str, str]) -> None:
    """Loads `loaded` into the objects of `state`; `keys` gives the name of each in `loaded`."""
    for key, value in state.items():
        found, target = loaded[keys[key]], value.of if isinstance(value, PerRank) else value
        if isinstance(target, torch.nn.Module):
            set_model_state_dict(target, found)
        elif isinstance(target, torch.optim.Optimizer) and (model := _model_of(target, state.values())) is not None:
            set_optimizer_state_dict(model, target, found.with_param_groups())
        elif hasattr(target, "load_state_dict"):
            target.load_state_dict(found)
        else:
            state[key] = found


class JsonState:
    """A value that JSON can hold, saved as text."""

    def __init__(self) -> None:
        self.value: Any = None

    def state_dict(self) -> dict[str, str]:
        """The value as text."""
        return {"json": json.dumps(self.value)}

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Restores the value."""
        self.value = json.loads(state["json"])


class LateRandomState(RandomState):
    """Random numbers that are not restored as they are loaded, but by `restore`: until then a loop draws some to find its place."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] | None = None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps the states for `restore`."""
        self._loaded = state

    def restore(self) -> None:
        """Restores what was loaded last, once; nothing if nothing was."""
        if self._loaded is not None:
            super().load_state_dict(self._loaded)
            self._loaded = None
