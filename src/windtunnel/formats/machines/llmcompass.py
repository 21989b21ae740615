"""LLMCompass' hardware descriptions (JSON): a GPU from its cores, arrays, clock and memory channels, and how GPUs are linked.

Matrix FLOP/s are cores x sublanes x array width x height x multiply-adds a cycle x 2 x Hz; those of fp32 lanes likewise. Bytes/s of
the memory are active channels x pins x bits of a pin / 8. Keys: `configs/template.json` of PrincetonUniversity/LLMCompass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.spec import Cluster, load_cluster

BASE = "a100-ib"
"""The cluster whose host, fabric and kernel curves stand in for what a description does not say."""
_WANTED = "a hardware description of LLMCompass"
_DEVICE = "device."
_CORE = "device.compute_chiplet.core."


def recognises(head: Head) -> bool:
    """The keys of a system, and of a device."""
    return head.starts_json("device_count", "interconnect", "device", "systolic_array")


def read(files: Sequence[Path], context: Context) -> Reading:
    """A cluster of one node with the described GPUs. FileError for what is no JSON, SpecError for a number that is missing."""
    path, *more = files
    table = load_json(path, _WANTED)
    if not isinstance(table, dict):
        raise FileError(str(path), f"a {type(table).__name__}", _WANTED)
    facts = _facts(table)
    base = context.on.cluster if context.on is not None and context.cluster is None else load_cluster(context.cluster or BASE)
    cluster = _cluster(table, facts, base, path.name)
    assumed = (
        f"host, fabric, power and kernel curves: those of {base.id}; --cluster CLUSTER says others",
        "bf16 is as fast as fp16; one node holds all devices",
    )
    ignored = (
        *(f"{other}: another description" for other in more),
        "latency of links, sizes of buffers, registers and process nodes",
    )
    rates = f"{facts['matrix_flops'] * 1e-12:,.1f} TFLOP/s, {facts['memory_bytes_per_s'] * 1e-12:.3f} TB/s"
    built = (f"a node of {facts['devices']} GPUs: {rates}",)
    return Reading("LLMCompass hardware", Content.CLUSTER, cluster, facts, built, ignored, assumed)


def _facts(table: Mapping[str, Any]) -> dict[str, Any]:
    clock = _number(table, f"{_DEVICE}frequency_Hz")
    cores = _number(table, f"{_DEVICE}compute_chiplet.core_count") * _number(table, f"{_DEVICE}compute_chiplet_count")
    lanes = cores * _number(table, f"{_CORE}sublane_count")
    array = [_number(table, f"{_CORE}systolic_array.{key}") for key in ("array_width", "array_height", "mac_per_cycle")]
    channels = [
        _number(table, f"{_DEVICE}io.{key}")
        for key in ("memory_channel_active_count", "pin_count_per_channel", "bandwidth_per_pin_bit")
    ]
    links = [_number(table, f"interconnect.{key}") for key in ("link_count_per_device", "link.bandwidth_per_direction_byte")]
    return {
        "devices": int(_number(table, "device_count")),
        "cores": int(cores),
        "clock_hz": clock,
        "matrix_flops": lanes * array[0] * array[1] * array[2] * 2 * clock,
        "fp32_flops": lanes * _number(table, f"{_CORE}vector_unit.fp32_count") * 2 * clock,
        "memory_bytes": _number(table, f"{_DEVICE}memory.total_capacity_GB") * 1e9,
        "memory_bytes_per_s": channels[0] * channels[1] * channels[2] / 8,
        "link_bytes_per_s": links[0] * links[1],
        "links": int(links[0]),
    }


def _cluster(table: Mapping[str, Any], facts: Mapping[str, Any], base: Cluster, source: str) -> Cluster:
    old = base.node.model_dump(mode="json", exclude_none=True)
    matrix = f"{facts['matrix_flops']!r}FLOP/s"
    gpu = {
        **{key: value for key, value in old["gpu"].items() if key not in ("names", "achievable", "l2", "notes", "draw")},
        "id": "llmcompass", "name": str(table.get("name", "LLMCompass"))[:80], "peak": {
            "fp32": f"{facts['fp32_flops']!r}FLOP/s", "fp16": matrix, "bf16": matrix},
        "memory": f"{facts['memory_bytes']!r}B", "memory_bandwidth": f"{facts['memory_bytes_per_s']!r}B/s", "sms": facts["cores"],
        "clock_hz": facts["clock_hz"], "kernels_from": base.node.gpu.kernels_from or base.node.gpu.id, "source": source,
    }  # fmt: skip
    kind = "nvlink_mesh" if table["interconnect"].get("topology") == "FC" else "nvswitch"
    scale_up = {
        "kind": kind, "size": facts["devices"], "links": facts["links"], "source": source,
        "bandwidth": f"{facts['link_bytes_per_s']!r}B/s per GPU each way",
    }  # fmt: skip
    node = {**old, "id": "llmcompass-node", "gpu": gpu, "gpus": facts["devices"], "scale_up": scale_up}
    whole = {**base.model_dump(mode="json", exclude_none=True), "id": "llmcompass", "name": gpu["name"], "node": node}
    return load_cluster(whole | {"gpus": facts["devices"], "source": f"LLMCompass: {source}"})


def _number(table: Mapping[str, Any], path: str) -> float:
    """A positive number at a path of keys. SpecError names the path."""
    value: Any = table
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e18:
        raise SpecError(path, value, "a number above 0")
    return float(value)
