"""Whose configuration of reinforcement learning a table is, by its sections: what the readers of scripts and of tables both ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENTRY = "entrypoint"
"""Where a table that was made of a command names the module that it starts."""


def is_areal(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of AReaL: roles with a backend, or all placed by an allocation mode."""
    actor = table.get("actor")
    sections = {"rollout", "gconfig", "ppo", "dataset", "train_dataset"}
    placed = isinstance(table.get("allocation_mode"), str) and bool(sections & set(table))
    return isinstance(actor, Mapping) and (placed or isinstance(actor.get("backend"), str) and "train_dataset" in table)


def is_roll(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of ROLL: an actor that is trained and one that generates, by strategies."""
    return all(isinstance(table.get(role), Mapping) and "strategy_args" in table[role] for role in ("actor_train", "actor_infer"))


def is_nemo_rl(table: Mapping[str, Any]) -> bool:
    """Whether a table has NeMo RL's sections: a policy that is trained by an algorithm or on a cluster of its own."""
    policy = table.get("policy")
    beside = any(isinstance(table.get(name), Mapping) for name in ("grpo", "ppo", "loss_fn", "cluster"))
    return isinstance(policy, Mapping) and beside and "model_name" not in table


def is_skyrl(table: Mapping[str, Any]) -> bool:
    """Whether a table has SkyRL's sections: a trainer that places a policy, beside a generator of several samples."""
    trainer, generator = table.get("trainer"), table.get("generator")
    return (
        isinstance(trainer, Mapping)
        and isinstance(generator, Mapping)
        and bool({"policy", "placement", "algorithm"} & set(trainer))
    )


def of_rl_trainer(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of one of them."""
    return is_areal(table) or is_roll(table) or is_nemo_rl(table) or is_skyrl(table)
