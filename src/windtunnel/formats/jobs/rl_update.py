"""Configurations of NeMo RL, AReaL, ROLL and SkyRL: the update of the policy. The rest of a step is read by the modules of `rl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from windtunnel.formats.jobs import trainer
from windtunnel.formats.jobs.hub_names import find_named, unknown_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys, interpolate
from windtunnel.formats.jobs.megatron import table as megatron_table
from windtunnel.formats.jobs.rl import areal, nemo_rl, roll, skyrl
from windtunnel.formats.jobs.rl.trainer import UPDATE_ALONE
from windtunnel.formats.jobs.scripts.said import is_areal, is_nemo_rl, is_roll, is_skyrl
from windtunnel.spec import Job


class _Reader(NamedTuple):
    """A trainer. `models`: keys that name the model, the first that is there counts."""

    name: str
    recognises: Callable[[Mapping[str, Any]], bool]
    table_of_update: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    models: tuple[str, ...]


_READERS = (
    _Reader("nemo-rl", is_nemo_rl, nemo_rl.table_of_update, ("policy.model_name",)),
    _Reader("areal", is_areal, areal.table_of_update, ("actor.path",)),
    _Reader("roll", is_roll, roll.table_of_update, ("actor_train.model_args.model_name_or_path", "pretrain")),
    _Reader("skyrl", is_skyrl, skyrl.table_of_update, ("trainer.policy.model.path",)),
)


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is the configuration of a trainer of `_READERS`."""
    return any(reader.recognises(table) for reader in _READERS)


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model (by its name on the hub), plan and runtime of the update; with `on`, also a job on that job's cluster."""
    reader = next(reader for reader in _READERS if reader.recognises(table))
    update = reader.table_of_update(table)
    keys = Keys(interpolate(table))
    path = next((path for path in reader.models if keys.get(path) is not None), reader.models[0])
    name = keys.get(path)
    if (stated is None or stated.model is None) and isinstance(name, str) and find_named(name) is None:
        raise unknown_model(path, name)
    by_megatron = megatron_table.recognises_table(update)
    found = megatron_table.import_table(update, on, stated) if by_megatron else trainer.import_table(update, on, stated)
    if "rollout" not in table and reader.recognises is is_areal and "allocation_mode" not in table:  # fine-tuning, rewards
        found = replace(found, assumed=tuple(note for note in found.assumed if note != UPDATE_ALONE))
    return replace(found, format=reader.name)
