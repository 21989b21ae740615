"""Job -> operator graph."""

from windtunnel.workload.blocks.core import visible
from windtunnel.workload.build import Written, build, build_together, shares_units
from windtunnel.workload.flops import active_parameters, hardware_flops, model_flops, parameter_count
from windtunnel.workload.graph import Block, Chunk, Workload
from windtunnel.workload.ops import Axis, Comm, Kind, Op, OpTable, Phase, Stream

__all__ = [
    "Axis",
    "Block",
    "Chunk",
    "Comm",
    "Kind",
    "Op",
    "OpTable",
    "Phase",
    "Stream",
    "Workload",
    "Written",
    "active_parameters",
    "build",
    "build_together",
    "hardware_flops",
    "model_flops",
    "parameter_count",
    "shares_units",
    "visible",
]
