"""Configurations that say only a part of a job: DeepSpeed's, and the execution or the system of a simulator, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.base.files import without_gz
from windtunnel.formats.jobs.deepspeed import implied_ranks
from windtunnel.formats.jobs.import_job import format_of_table
from windtunnel.formats.jobs.simulators import calculon, llm_analysis, simumax
from windtunnel.formats.reading import Content, Reading
from windtunnel.spec.loading.files import SUFFIXES, read_table

MOST_FACTS = 60
_NEOX = frozenset(
    {
        "data_path", "vocab_file", "merge_file", "train_data_paths", "valid_data_paths", "test_data_paths", "text_gen_type",
        "maximum_tokens", "checkpoint_validation_with_forward_pass", "tensorboard_dir", "log_dir", "use_wandb", "wandb_host",
        "profile_step_start", "profile_step_stop", "memory_profiling", "hostfile", "launcher",
    }
)  # fmt: skip
"""Keys of the files that GPT-NeoX takes beside the one with the model (`configs/local_setup.yml`, `text_generation.yml`, …)."""


def part_alone(path: Path) -> Reading | None:
    """What a part of a job says, as facts; None for a file that is a whole job or a model, or that cannot be read."""
    if without_gz(path).suffix.lower() not in SUFFIXES:
        return None
    try:
        table = read_table(path)
    except WindtunnelError:
        return None
    kind = format_of_table(table)
    if kind == "deepspeed":
        ranks = implied_ranks(table)
        facts = ({} if ranks is None else {"data_parallel_ranks": ranks}) | dict(_leaves(table, ""))
        needs = "the model and the machine: windtunnel predict FILE --model MODEL --on CLUSTER"
        return Reading("DeepSpeed configuration", Content.SETTINGS, table, facts, assumed=(f"left open: {needs}",))
    for reader in (calculon.READER, simumax.READER, llm_analysis.READER):
        part = reader.part(table)
        if reader.name == kind and part in ("plan", "system"):
            needs = f"the model: windtunnel import MODEL.json {'FILE' if part == 'plan' else 'EXECUTION.json FILE'}"
            facts = {"part": part} | dict(_leaves(table, ""))
            return Reading(f"{reader.name} {part}", Content.SETTINGS, table, facts, assumed=(f"left open: {needs}",))
    keys = {str(key).replace("-", "_") for key in table}
    if kind in ("", "huggingface") and "model_type" not in table and len(_NEOX & keys) >= 2:
        open_ = "left open: the model and the degrees, which another file of GPT-NeoX says: import that one"
        return Reading("GPT-NeoX setup", Content.SETTINGS, table, dict(_leaves(table, "")), assumed=(open_,))
    return None


def _leaves(table: Mapping[str, Any], head: str) -> list[tuple[str, Any]]:
    return list(_walk_keys(table, head))[:MOST_FACTS]


def _walk_keys(table: Mapping[str, Any], head: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = f"{head}.{key}" if head else str(key)
        if isinstance(value, Mapping):
            yield from _walk_keys(value, path)
        elif not isinstance(value, list):
            yield path, value
