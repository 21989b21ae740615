"""Collectives inside a node: NCCL's, the engines' own all-reduce, and DeepEP's dispatch and combine.

Calls inside a node as a table of collectives, which `windtunnel validate` reads.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.formats.machines.kernels.measured.cells import MILLI, Cells
from windtunnel.spec import load_gpu

MICRO = 1e-6

NAMES = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "alltoall"}
"""Calls of the tables -> those of tables of collectives."""

WIDTH = {"half": 2, "int8": 1, "bfloat16": 2}
"""Bytes of an element, in which the tables state sizes."""


class InnerCall(NamedTuple):
    """A call of `ranks` GPUs of one node: `bytes` of the whole buffer as nccl-tests counts it, or, of a dispatch or combine, of the
    copies of a rank's tokens; `what` says whose kernel it is and its shape."""

    collective: str
    ranks: int
    dtype: str
    bytes: int
    seconds: float
    what: str


def nccl_calls(cells: Cells) -> tuple[list[InnerCall], tuple[str, ...]]:
    """Rows of nccl-tests."""
    known, ignored = cells.known_rows("op_name", NAMES, "calls of")
    known, more = known.known_rows("nccl_dtype", {name: name for name in WIDTH}, "calls in")
    dtypes = known.words("nccl_dtype")
    moved = known.read_whole("message_size") * np.array([WIDTH[name] for name in dtypes], np.int64)
    columns = (known.words("op_name"), known.read_whole("num_gpus"), dtypes, moved, known.seconds)
    return [InnerCall(NAMES[name], int(n), str(d), int(b), float(s), "NCCL") for name, n, d, b, s in zip(*columns, strict=True)], (
        *ignored,
        *more,
    )


def engine_calls(cells: Cells) -> tuple[list[InnerCall], tuple[str, ...]]:
    """The engines' own all-reduce, in a CUDA graph and without."""
    known, ignored = cells.known_rows("allreduce_dtype", {"bfloat16": "bfloat16"}, "calls in")
    sources = known.words("kernel_source")
    moved = 2 * known.read_whole("message_size")
    columns = (known.read_whole("num_gpus"), moved, known.seconds, sources)
    return [
        InnerCall("all_reduce", int(n), "bfloat16", int(b), float(s), str(w)) for n, b, s, w in zip(*columns, strict=True)
    ], ignored


def deepep_calls(cells: Cells) -> tuple[list[InnerCall], tuple[str, ...]]:
    """Dispatch and combine of DeepEP on the GPUs of one node. Bytes are those of top-k copies of a rank's tokens: 8 bits a number
    in a dispatch, 16 in a combine. The collector keeps the best dispatch in FP8 of its normal kernels too
    (collector/deep_collector/extract_data.py); in 16 bits, H100's would be faster than NVLink."""
    low = "dispatch_avg_t_us" in cells.table.column_names
    nodes = cells.read_whole("node_num")
    part = cells.take(np.asarray(nodes == 1, np.bool_))
    ignored = (f"{cells.where}: {int((nodes != 1).sum()):,} rows of several nodes",) if (nodes != 1).any() else ()
    copies = part.read_whole("num_token") * part.read_whole("num_topk") * part.read_whole("hidden_size")
    shape = [
        f"hidden={h} top_k={k} experts={e}"
        for h, k, e in zip(*(part.read_whole(name) for name in ("hidden_size", "num_topk", "num_experts")), strict=True)
    ]
    calls: list[InnerCall] = []
    for way, width in (("dispatch", 1), ("combine", 2)):
        took = part.positive(f"{way}_avg_t_us" if low else f"{way}_transmit_us", MICRO)
        sms: Sequence[int] = [0] * len(part) if low else part.read_whole(f"{way}_sms").tolist()
        for b, seconds, text, count in zip(copies.tolist(), took.tolist(), shape, sms, strict=True):
            what = f"DeepEP {'low latency' if low else 'normal'} {way} {text}" + (f" sms={count}" if count else "")
            calls.append(InnerCall("alltoall", 0, "fp8" if width == 1 else "bfloat16", int(b * width), seconds, what))
    return calls, ignored


def alltoall_calls(cells: Cells) -> tuple[list[InnerCall], tuple[str, ...]]:
    """TensorRT-LLM's dispatch and combine over NVLink, up to the GPUs of a domain."""
    known, ignored = cells.known_rows("moe_dtype", {"bfloat16": "", "fp8": "", "nvfp4": ""}, "calls in")
    width = {"bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
    sizes = [known.read_whole(name) for name in ("num_tokens", "hidden_size", "topk", "num_experts", "moe_ep_size")]
    took = known.positive("latency", MILLI)
    words = (known.words(name) for name in ("op_name", "kernel_source", "moe_dtype"))
    calls = [
        InnerCall(
            "alltoall", int(ep), str(dtype), int(tokens * hidden * top_k * (2.0 if "combine" in op else width[dtype])),
            float(seconds),
            f"{source} {op.removeprefix('alltoall_')} hidden={hidden} top_k={top_k} experts={experts}",
        )
        for tokens, hidden, top_k, experts, ep, seconds, op, source, dtype in zip(*sizes, took, *words, strict=True)
    ]  # fmt: skip
    return calls, ignored


COLUMNS = (
    "id", "family", "source", "system", "gpu", "gpus_per_node", "scaleup_gpus", "nodes", "gpus", "collective", "algo_proto",
    "dtype", "bytes", "inplace", "time_us", "clean", "quality", "notes",
)  # fmt: skip

NODES = {"gb200-nvl72": (4, 72), "gb300-nvl72": (4, 72)}
"""GPUs of a node and of its NVLink domain, where they are not 8 and 8."""


def calls_text(gpu: str, engine: str, release: str, calls: Sequence[InnerCall]) -> str:
    """The CSV of what one release of an engine measured. NCCL's rows are a family of their own; kernels of engines and of DeepEP
    are named as such, and no prediction of NCCL is meant for them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    node, domain = NODES.get(gpu, (8, 8))
    name = load_gpu(gpu).name
    source = f"aiconfigurator {engine} {release} (Apache-2.0)"
    for number, call in enumerate(calls):
        ranks = call.ranks or node
        nccl = call.what == "NCCL"
        writer.writerow(
            [
                f"A{number:05d}", f"{'NCCL' if nccl else engine}-{gpu}", source, f"{ranks} GPUs of {name}", gpu, node,
                domain, -(-ranks // node), ranks, call.collective, "" if nccl else call.what,
                call.dtype, call.bytes, 0, f"{1e6 * call.seconds:.6g}", "y" if nccl else "n",
                "clean" if nccl else "not NCCL", f"NCCL {release}" if nccl else call.what,
            ]
        )  # fmt: skip
    return text.getvalue()
