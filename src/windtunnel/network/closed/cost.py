"""The parts of a selected algorithm's time: latency of its steps, traffic over rates inside and between nodes, a pipeline's fill.

seconds = launch + steps x hop + max(bytes inside / rate inside, bytes between / rate between) + fill. Traffic factors follow from
the algorithms, rates from channels, buffers, NVLink, PCIe and NICs. Launch, hops, the share of a link that each protocol achieves,
what a channel copies, and the fill are fitted constants (`catalog/calibration/collectives.toml`), a few per GPU generation and
fabric.

The closed form adds the parts up; lanes (`network/lanes/build.py`) have the same rates and are run.

Seconds of DeepEP's dispatch and combine inside a scale-up domain: kernels of their own, on the SMs that they are given.

    seconds = start + ((copies / (SMs rate) + tokens scan / SMs)^p + (bytes out of the GPU / (wire link))^p)^(1/p)

Each SM copies what it sends or sums (`rate`) and looks at every token for every rank (`scan`); the link bounds them all. The form
follows DeepEP's csrc/kernels/intranode.cu. `windtunnel fit forward` fits the constants on aiconfigurator's tables, by GPU:
`catalog/calibration/deepep.json`. A dispatch is measured in FP8 with scales for 128 numbers, a combine in bf16; a dispatch in bf16
takes the constants of a combine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.files import CATALOG
from windtunnel.network.algorithm import ALGORITHMS, MESSAGES, ClosedCall
from windtunnel.network.closed.fitted import SENDS, NetConstants, NodeConstants, SendConstants
from windtunnel.network.groups.bandwidth import GroupLinks
from windtunnel.network.groups.shape import Group
from windtunnel.network.nccl import constants as c
from windtunnel.network.nccl.channels import ChannelSearch
from windtunnel.workload.ops import Comm

_ON_WIRE_RCCL = (0.5, 56.0 / 64.0, 1.0)
"""Data per byte sent, as `DATA_ON_WIRE` of NCCL: RCCL's LL128 gives 8 of 64 bytes to flags (its `device.h`)."""


MADE_OF_SENDS = (Comm.ALL_TO_ALL, Comm.SEND_RECV, Comm.GATHER, Comm.SCATTER)
"""Calls that are single messages, whatever the algorithm."""


class Cost(NamedTuple):
    """Total seconds, and the size-independent part of them."""

    seconds: float
    latency: float


class CallParts(NamedTuple):
    """Seconds of a call on links without other traffic."""

    latency: float
    """Launch and hops."""
    inside: float
    """All of its bytes on the links inside nodes."""
    outside: float
    """The same between nodes; 0 for a call inside one."""
    fill: float
    """Until the pipeline gives its first result."""

    @property
    def seconds(self) -> float:
        """Of the call: bytes inside nodes and between them move at the same time."""
        return self.latency + max(self.inside, self.outside) + self.fill


def parts_of(
    comm: Comm,
    size: float,
    group: Group,
    links: GroupLinks,
    graph: ChannelSearch,
    algorithm: str,
    protocol: str,
    node: NodeConstants,
    net: NetConstants,
    sends: SendConstants = SENDS,
) -> CallParts:
    """The parts of a collective of `size` bytes in total with the selected algorithm and protocol."""
    chosen = ALGORITHMS[MESSAGES if comm in MADE_OF_SENDS else algorithm]
    parts: CallParts = chosen.parts(ClosedCall(comm, size, group, links, graph, protocol, node, net, sends))
    return parts


def fill_pipeline(latency: float, moved: float, inside: float, outside: float, fill: float) -> CallParts:
    """`moved` bytes that pass the links inside nodes and those between them at these rates, and then `fill` bytes more."""
    return CallParts(latency, moved / inside, moved / outside, fill / min(inside, outside))


def limit_of(group: Group, links: GroupLinks, graph: ChannelSearch, node: NodeConstants) -> float:
    """B/s of a GPU that its channels move together, where fewer run than by NCCL's own rules.

    Inside a domain a channel moves what it copies, or its share of a ring's rate if that is more; between domains what NCCL's
    search assigns to it.
    """
    if graph.running >= graph.usual or group.nodes > 1 or math.isinf(node.channel):
        return graph.limit
    return min(graph.limit, graph.running * max(node.channel, node.ring[2] * links.whole / graph.usual))


def pass_buffers(graph: ChannelSearch, protocol: int, hop: float) -> float:
    """B/s that the buffers of the running channels let through: what they hold, once in a hop's time."""
    return graph.running * graph.windows[protocol] / hop


def on_wire(links: GroupLinks) -> tuple[float, float, float]:
    """Data per byte sent, by protocol."""
    return c.DATA_ON_WIRE if links.nvidia else _ON_WIRE_RCCL


FILE = CATALOG / "calibration" / "deepep.json"
MOST_RANKS = 8
"""Ranks of a domain that these kernels serve (NUM_MAX_NVL_PEERS); others go through the kernels between nodes."""

SMS = 20
"""SMs that DeepEP takes by default (Buffer.num_sms)."""

SCALED = 1.0 + 4.0 / 128.0
"""Bytes of a number in FP8 with a scale in fp32 for 128."""

CARRIED = 0.15
"""Relative error of constants that another GPU of the architecture takes; assumed."""

NEAREST = {"hopper": "h100-sxm-80gb", "blackwell": "b200-sxm-180gb"}
"""Architecture -> the measured GPU whose constants its others take."""


@dataclass(frozen=True)
class DispatchCurve:
    """Constants of one way on one GPU."""

    start: float
    """Seconds of the shortest call."""
    rate: float
    """B/s of copies of an SM."""
    scan: float
    """Seconds of an SM for each token of a rank."""
    wire: float
    """Share of the link that the kernel reaches."""
    blend: float
    """Exponent of the norm that joins SMs and link."""
    error: float = 0.0
    """Relative error of rows of 1,024 tokens and more that no fit saw, 1 sigma."""
    held_out: float = 0.0
    """Their median error in per cent."""
    rows: int = 0
    source: str = ""


def dispatch_seconds(curve: DispatchCurve, sms: Floats, tokens: Floats, moved: Floats, out: Floats, link: float) -> Floats:
    """[calls] seconds of `tokens` of a rank whose copies are `moved` bytes, `out` of them for other GPUs over `link` B/s."""
    work = moved / (sms * curve.rate) + tokens * curve.scan / sms
    wire = out / (curve.wire * link)
    return np.asarray(curve.start + (work**curve.blend + wire**curve.blend) ** (1.0 / curve.blend), np.float64)


@lru_cache(maxsize=1)
def stored_dispatches() -> Mapping[str, Mapping[str, DispatchCurve]]:
    """GPU -> way (dispatch, combine) -> constants."""
    table = json.loads(FILE.read_text(encoding="utf-8"))["gpus"]
    return {gpu: {way: DispatchCurve(**constants) for way, constants in ways.items()} for gpu, ways in table.items()}


def choose_dispatch(gpu: str, architecture: str) -> tuple[Mapping[str, DispatchCurve], str] | None:
    """The constants for a GPU and the GPU that they are of; None where none of its architecture was measured."""
    known = stored_dispatches()
    name = gpu if gpu in known else NEAREST.get(architecture, "")
    return (known[name], name) if name in known else None


def dispatch_text(source: str, gpus: Mapping[str, Mapping[str, DispatchCurve]]) -> str:
    """The file's text: constants to four digits."""

    def shorten(value: object) -> object:
        return float(f"{value:.4g}") if isinstance(value, float) else value

    content = {
        gpu: {way: {name: shorten(value) for name, value in asdict(one).items()} for way, one in ways.items()}
        for gpu, ways in gpus.items()
    }
    return json.dumps({"format": 1, "source": source, "gpus": content}, indent=1, ensure_ascii=False) + "\n"
