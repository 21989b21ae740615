"""Types of quantities in checked tables: read by the parsers of `units`, and written back as text that these read.

Base class of checked tables from files: no unknown keys, immutable.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from windtunnel.base.units import parse_bandwidth, parse_flops, parse_size, parse_time


def _rate_serializer(unit: str) -> PlainSerializer:
    """How JSON and TOML write a rate: exact digits and the unit, which the parser above reads back to the same float."""
    return PlainSerializer(lambda v: f"{v!r}{unit}", return_type=str, when_used="json")


def _text(*examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": list(examples)})


def _text_or_number(unit: str, *examples: str) -> WithJsonSchema:
    number = {"type": "number", "minimum": 0, "description": unit}
    return WithJsonSchema({"anyOf": [number, {"type": "string"}], "examples": list(examples)})


Size = Annotated[float, BeforeValidator(parse_size), _text_or_number("bytes", "80GiB", "25MB")]
Seconds = Annotated[float, BeforeValidator(parse_time), _text_or_number("seconds", "2us", "1.5ms")]
FlopRate = Annotated[float, BeforeValidator(parse_flops), _rate_serializer("FLOP/s"), _text("312TFLOP/s")]
OwnedBandwidth = Annotated[
    float, BeforeValidator(parse_bandwidth), _rate_serializer("B/s per GPU each way"), _text("300GB/s per GPU each way")
]
NicBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "NIC")), _rate_serializer("B/s per NIC each way"), _text("200Gb/s")
]
NodeBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "node")), _rate_serializer("B/s per node each way"), _text("25GB/s")
]
LinkBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "link")), _rate_serializer("B/s per link each way"), _text("63GB/s")
]
PortBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "port")), _rate_serializer("B/s per port each way"), _text("100GB/s")
]
StorageBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "storage")), _rate_serializer("B/s per storage each way"), _text("2TB/s")
]
GpuBandwidth = Annotated[
    float, BeforeValidator(lambda v: parse_bandwidth(v, "GPU")), _rate_serializer("B/s per GPU each way"), _text("2.039TB/s")
]


class Strict(BaseModel):
    """A table of a file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
