"""A job's state as one nested dictionary with names that do not depend on the plan, and back."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from windtunnel.base.errors import SpecError

OPTIONS = "param_groups"


class NamedOptions(dict[str, Any]):
    """An optimizer's state with its options beside each parameter, under its name, since groups of a pipeline's stages have other
    parameters; the names are those of torch's `flatten_optimizer_state_dict`. `groups`: the parameters of this rank's groups;
    `own`: their options before anything was loaded."""

    def __init__(self, collected: dict[str, Any]) -> None:
        self.groups: list[list[str]] = [list(group["params"]) for group in collected[OPTIONS]]
        self.own = {
            name: {key: value for key, value in group.items() if key != "params"}
            for group in collected[OPTIONS]
            for name in group["params"]
        }
        super().__init__(state=collected["state"], **{OPTIONS: {name: dict(options) for name, options in self.own.items()}})

    def drop_missing_options(self, key: str, known: Iterable[str]) -> None:
        """Takes out the options that a checkpoint, whose names under `key` are `known`, does not have for parameters that it has:
        another version of torch has saved it."""
        there = set(known)
        for name, options in self[OPTIONS].items():
            missing = [one for one in options if f"{key}.{OPTIONS}.{name}.{one}" not in there]
            if len(missing) < len(options):
                for one in missing:
                    del options[one]

    def with_param_groups(self) -> dict[str, Any]:
        """As torch loads it. SpecError where parameters of one group were saved with other options each."""
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
    """State that each rank has of its own, such as random numbers. A rank that the saving job did not have takes that of
    `rank` modulo
    its world."""

    of: Any


class RandomState:
    """The generators of Python, numpy, torch and, where there is one, this rank's GPU."""

    def state_dict(self) -> dict[str, Any]:
        """As they are now."""
        numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
        collected = {"host": pickle.dumps((random.getstate(), numpy)), "torch": torch.get_rng_state()}
        return {**collected, "cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else collected

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets them."""
        python, numpy = pickle.loads(state["host"])
        random.setstate(python)
        if numpy is not None:
            import numpy as np

            np.random.set_state(numpy)
        torch.set_rng_state(state["torch"])
        if "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"])


def collect_state(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """The values of `state` as dictionaries: models and their optimizers by parameters' names, others as `state_dict` says, tensors
    and plain values as they are."""
    collected: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, PerRank):
            collected[rank_key(key, rank)] = _state_value(value.of, state)
        else:
            collected[key] = _state_value(value, state)
    return collected


def rank_key(key: str, rank: int) -> str:
    """Under which name a rank's own state is saved."""
    return f"{key}.rank{rank}"


def _state_value(value: Any, state: dict[str, Any]) -> Any:
    if isinstance(value, torch.nn.Module):
        return get_model_state_dict(value)
    if isinstance(value, torch.optim.Optimizer) and (model := _model_of(value, state.values())) is not None:
        return NamedOptions(get_optimizer_state_dict(model, value))
    return value.state_dict() if hasattr(value, "state_dict") else value


def _model_of(optimizer: torch.optim.Optimizer, values: Iterable[Any]) -> Any:
    """The module among `values` that has the optimizer's parameters."""
    wanted = {id(one) for group in optimizer.param_groups for one in group["params"]}
    models = (value for value in values if isinstance(value, torch.nn.Module))
    return next((one for one in models if wanted <= {id(parameter) for parameter in one.parameters()}), None)


def apply_state(state: dict[str, Any], loaded: dict[str, Any], keys: dict[str, str]) -> None:
    """Gives `loaded` back to the objects of `state`; `keys` says under which name each lies there."""
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
