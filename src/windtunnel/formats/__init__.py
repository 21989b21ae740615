"""Importers of other tools' job descriptions. Each reports the keys that it ignored and the values that it assumed.

Names are imported on first use: a trace or a workload needs no reader of configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.formats.jobs.deepspeed.configuration import import_table as from_deepspeed
    from windtunnel.formats.jobs.huggingface.config import from_config
    from windtunnel.formats.jobs.import_job import format_of_table, import_job
    from windtunnel.formats.jobs.imported import Imported
    from windtunnel.formats.jobs.megatron.importer import from_arguments
    from windtunnel.formats.jobs.torchtitan.configuration import import_table as from_torchtitan

_HOME = {
    "Imported": "jobs.imported",
    "from_arguments": "jobs.megatron.importer",
    "from_config": "jobs.huggingface.config",
    "from_deepspeed": "jobs.deepspeed.configuration:import_table",
    "from_torchtitan": "jobs.torchtitan.configuration:import_table",
    "import_job": "jobs.import_job",
    "format_of_table": "jobs.import_job",
}

__all__ = [
    "Imported",
    "format_of_table",
    "from_arguments",
    "from_config",
    "from_deepspeed",
    "from_torchtitan",
    "import_job",
]

__getattr__ = lazy(__name__, _HOME)
