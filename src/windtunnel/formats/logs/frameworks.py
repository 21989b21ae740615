"""The registry of frameworks whose logs are read, one line each. A log may hold lines of several (Megatron-DeepSpeed)."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Protocol, cast

from windtunnel.formats.logs import (
    composer,
    deepspeed,
    dict_lines,
    dlrover,
    levanter,
    line_forms,
    megatron,
    nemo,
    nemo_rl,
    progress,
    torchtitan,
    verl,
)
from windtunnel.formats.logs.step_log import StepLines


class Framework(Protocol):
    """A module of this folder, or a table of `line_forms`: its name, what it is known by in the first bytes, words of which every
    line that it wants holds one, and what collects the lines of one log."""

    NAME: str
    KNOWN_BY: re.Pattern[str]
    WORDS: tuple[str, ...]
    READER: Callable[[], StepLines]


_MODULES: tuple[ModuleType, ...] = (megatron, nemo, torchtitan, composer, dlrover, deepspeed, verl, nemo_rl, levanter)
FRAMEWORKS: tuple[Framework, ...] = tuple(
    cast(Framework, one) for one in (*_MODULES, *line_forms.line_forms(), dict_lines, progress)
)
