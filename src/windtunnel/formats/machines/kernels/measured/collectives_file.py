"""Calls inside a node as a table of collectives, which `windtunnel validate` reads."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from windtunnel.spec import load_gpu

if TYPE_CHECKING:
    from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine

COLUMNS = (
    "id", "family", "source", "system", "gpu", "gpus_per_node", "scaleup_gpus", "nodes", "gpus", "collective", "algo_proto",
    "dtype", "bytes", "inplace", "time_us", "clean", "quality", "notes",
)  # fmt: skip

NODES = {"gb200-nvl72": (4, 72), "gb300-nvl72": (4, 72)}
"""GPUs of a node and of its NVLink domain, where they are not 8 and 8."""


def calls_text(one: MeasuredEngine) -> str:
    """The CSV. NCCL's rows are a family of their own; kernels of engines and of DeepEP are named as such, and no prediction of NCCL
    is meant for them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    node, domain = NODES.get(one.gpu, (8, 8))
    name = load_gpu(one.gpu).name
    source = f"aiconfigurator {one.engine} {one.release} (Apache-2.0)"
    for number, call in enumerate(one.calls):
        ranks = call.ranks or node
        nccl = call.what == "NCCL"
        writer.writerow(
            [
                f"A{number:05d}", f"{'NCCL' if nccl else one.engine}-{one.gpu}", source, f"{ranks} GPUs of {name}", one.gpu, node,
                domain, -(-ranks // node), ranks, call.collective, "" if nccl else call.what,
                call.dtype, call.bytes, 0, f"{1e6 * call.seconds:.6g}", "y" if nccl else "n",
                "clean" if nccl else "not NCCL", f"NCCL {one.release}" if nccl else call.what,
            ]
        )  # fmt: skip
    return text.getvalue()
