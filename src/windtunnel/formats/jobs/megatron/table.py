"""Megatron-LM's flags as a table: the `model_config.yaml` of its functional tests, and what is written after their example.

`MODEL_ARGS` has the flags, dashes and all; a flag that is true stands alone, one that is false is left out. `ENV_VARS` are
variables of the run; `TEST_TYPE`, `MODE`, `METRICS` and scripts say what the test compares. A value of several words stands in
brackets: `[mlp moe_act]`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.megatron.arguments import parse
from windtunnel.formats.jobs.megatron.importer import from_parsed
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.spec import Job

_FLAGS = "MODEL_ARGS"


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has Megatron-LM's flags under `MODEL_ARGS`."""
    flags = table.get(_FLAGS)
    return isinstance(flags, Mapping) and any(str(flag).startswith("--") for flag in flags)


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """As `importer.from_arguments` of the same flags."""
    stated = stated or Stated()
    given = parse(" ".join(_words(flag, value) for flag, value in table[_FLAGS].items()), _FLAGS, stated)
    imported = from_parsed(given, "", on, stated)
    beside = tuple(str(key) for key in table if key != _FLAGS)
    return replace(imported, ignored=(*imported.ignored, *beside))


def _words(flag: Any, value: Any) -> str:
    if not str(flag).startswith("--"):
        raise SpecError(f"{_FLAGS}.{flag}", value, "flags that begin with --")
    if value is None or value is True:
        return str(flag)
    if value is False:
        return ""
    text = value.strip() if isinstance(value, str) else ""
    bracketed = text[:1] == "[" and text[-1:] == "]"
    values = text[1:-1].split() if bracketed else value if isinstance(value, list) else [value]
    return " ".join([str(flag), *(shlex.quote(str(one)) for one in values)])
