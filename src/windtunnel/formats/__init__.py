"""Importers of other tools' job descriptions. Each reports the keys that it ignored and the values that it assumed.

Names are imported on first use: a trace or a workload needs no reader of configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.formats.deepspeed import from_deepspeed
    from windtunnel.formats.huggingface import from_config
    from windtunnel.formats.imported import Imported
    from windtunnel.formats.jobs import TABLE_FORMATS, import_job, kind_of
    from windtunnel.formats.megatron import from_arguments
    from windtunnel.formats.torchtitan import from_torchtitan

_HOME = {
    "Imported": "imported",
    "TABLE_FORMATS": "jobs",
    "from_arguments": "megatron",
    "from_config": "huggingface",
    "from_deepspeed": "deepspeed",
    "from_torchtitan": "torchtitan",
    "import_job": "jobs",
    "kind_of": "jobs",
}

__all__ = [
    "TABLE_FORMATS",
    "Imported",
    "from_arguments",
    "from_config",
    "from_deepspeed",
    "from_torchtitan",
    "import_job",
    "kind_of",
]

__getattr__ = lazy(__name__, _HOME)
