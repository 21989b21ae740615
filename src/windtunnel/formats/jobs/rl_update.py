"""A configuration of NeMo RL: the update of its policy. The rest of a step is read by `jobs.rl.nemo_rl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.formats.jobs import trainer
from windtunnel.formats.jobs.hub_names import find_named, unknown_model
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.keys import interpolate
from windtunnel.formats.jobs.megatron import table as megatron_table
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.formats.jobs.rl.nemo_rl import is_nemo_rl, table_of_update
from windtunnel.spec import Job


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has NeMo RL's sections."""
    return is_nemo_rl(table)


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model (by its name on the hub), plan and runtime of the update; with `on`, also a job on that job's cluster."""
    update = table_of_update(table)
    name = interpolate(table)["policy"].get("model_name")
    if (stated is None or stated.model is None) and isinstance(name, str) and find_named(name) is None:
        raise unknown_model("policy.model_name", name)
    by_megatron = megatron_table.recognises_table(update)
    found = megatron_table.import_table(update, on, stated) if by_megatron else trainer.import_table(update, on, stated)
    return replace(found, format="nemo-rl")
