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
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.megatron.arguments import parse
from windtunnel.formats.jobs.megatron.flags import KINDS
from windtunnel.formats.jobs.megatron.importer import from_arguments, from_parsed
from windtunnel.formats.jobs.megatron.launchers import SWIFT_FLAGS
from windtunnel.spec import Job

_FLAGS = "MODEL_ARGS"
_OF_SWIFT = {"tuner_type", "train_type", "template", "task_type", "sft_type"}
_OF_MEGATRON = {"tensor_model_parallel_size", "expert_model_parallel_size", "pipeline_model_parallel_size", "recompute_granularity"}


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has Megatron-LM's flags under `MODEL_ARGS`, or is the args.json of Megatron-SWIFT."""
    flags = table.get(_FLAGS)
    if _is_swift(table):
        return True
    return isinstance(flags, Mapping) and any(str(flag).startswith("--") for flag in flags)


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """As `importer.from_arguments` of the same flags."""
    stated = stated or Stated()
    if _is_swift(table):
        return _of_swift(table, on, stated)
    given = parse(" ".join(_words(flag, value) for flag, value in table[_FLAGS].items()), _FLAGS, stated)
    imported = from_parsed(given, "", on, stated)
    beside = tuple(str(key) for key in table if key != _FLAGS)
    return replace(imported, ignored=(*imported.ignored, *beside))


def _is_swift(table: Mapping[str, Any]) -> bool:
    """Whether a table is what Megatron-SWIFT writes beside its checkpoints, or its flags as YAML."""
    named = isinstance(table.get("model"), str) or isinstance(table.get("load"), str)
    return named and bool(_OF_SWIFT & set(table)) and bool(_OF_MEGATRON & set(table))


def _of_swift(table: Mapping[str, Any], on: Job | None, stated: Stated) -> Imported:
    """As `importer.from_arguments` of `megatron sft` with the keys that say something; defaults of others, which it writes too, are
    left out."""
    gpus = next((table[name] for name in ("global_world_size", "world_size") if isinstance(table.get(name), int)), None)
    words = ["megatron sft"]
    for name, value in table.items():
        flag = str(name).replace("_", "-")
        if value in (None, False, "", []) or isinstance(value, Mapping) or flag not in KINDS and flag not in SWIFT_FLAGS:
            continue
        values = [] if value is True else value if isinstance(value, list) else [value]
        words.append(" ".join([f"--{flag}", *(shlex.quote(str(one)) for one in values)]))
    if isinstance(gpus, int) and gpus > 1 and "world_size" not in table:
        words.append(f"--world-size {gpus}")
    left = [
        str(name) for name in table if str(name).replace("_", "-") not in KINDS and str(name).replace("_", "-") not in SWIFT_FLAGS
    ]
    return from_arguments(" ".join(words) + "\n", "args.json", on, stated).with_notes(left, ())


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
