"""The RL trainer that a launch script starts or a configuration is for. Each trainer is a module of this folder and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.files import without_gz
from windtunnel.formats.jobs.rl import areal, nemo_rl, openrlhf, roll, skyrl, slime, trl, verl
from windtunnel.formats.jobs.rl.trainer import RLTrainer
from windtunnel.formats.jobs.scripts.command import ScriptCommands, launch
from windtunnel.formats.jobs.scripts.said import of_rl_trainer
from windtunnel.formats.jobs.scripts.script_call import call_of
from windtunnel.formats.jobs.scripts.trainer_command import table_of_commands
from windtunnel.formats.text.source import read_source
from windtunnel.spec.loading.files import SUFFIXES, read_table

OF_COMMANDS = (verl.read_words, openrlhf.read_words)
"""Readers of a command's words."""
OF_TABLES = (nemo_rl.read_table, areal.read_table, roll.read_table, skyrl.read_table, trl.read_table)
"""Readers of a configuration's table."""

TOOLS = "verl, slime, vime, AReaL, ROLL, SkyRL, OpenRLHF, NeMo RL or TRL"


def is_trainer(path: Path) -> bool:
    """Whether a table in a file is the configuration of an RL trainer. Raises as `read_table`."""
    table = nemo_rl.open_defaults(read_table(path), path.parent)
    return of_rl_trainer(table) or trl.is_grpo(table)


def read_trainer(source: Path, gpus: int | None = None) -> RLTrainer | None:
    """What the last command of a script that starts an RL trainer states, or a configuration of one; None for another file. A
    script may have in front of it, and behind it, what it is started with.

    `gpus`: of all together, where the user states them. Raises as `read_source` and `read_table`, and SpecError where a batch hangs
    on GPUs that nothing states.
    """
    call = call_of(source)
    path, arguments, environment = (source, (), {}) if call is None else (call.script, call.arguments, call.environment)
    if without_gz(path).suffix.lower() in SUFFIXES:
        return _of_table(nemo_rl.open_defaults(read_table(path), path.parent), gpus)
    text, where = read_source(path)
    script = ScriptCommands(text, where, arguments, environment, path)
    for command in reversed(script.commands):
        for read in OF_COMMANDS:
            if (found := read(command)) is not None:
                return found
    words = launch(text, where, arguments, environment, path)[0]
    if (found := slime.read_words(words)) is not None:  # as Megatron-LM's flags are read
        return found
    table = table_of_commands(script.commands, script.variables, path.parent)
    return None if table is None else _of_table(table, gpus)


def _of_table(table: Mapping[str, Any], gpus: int | None) -> RLTrainer | None:
    return next((found for read in OF_TABLES if (found := read(table, gpus)) is not None), None)
