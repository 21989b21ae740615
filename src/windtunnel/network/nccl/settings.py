"""NCCL_* variables that windtunnel honours; they come from the job or the caller, never from the process environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.algorithm import CHOSEN, spellings
from windtunnel.network.nccl.constants import LL, LL128, PROTOCOLS, SIMPLE
from windtunnel.network.nccl.graph_file import DumpedGraphs, check_graphs, read_graphs
from windtunnel.spec.machine.cluster import Cluster

_LEVELS = {"LOC": 0, "NVL": 1, "PIX": 2, "PXB": 3, "PHB": 4, "SYS": 5}
KNOWN = {
    "NCCL_ALGO": "algorithms among which the tuner chooses; ^ before the list excludes",
    "NCCL_PROTO": "protocols, the same way; naming LL128 forces it where NCCL would not use it",
    "NCCL_MIN_NCHANNELS": "at least this many channels",
    "NCCL_MAX_NCHANNELS": "at most this many; NVLS inside a node keeps its own count, as in NCCL",
    "NCCL_MIN_CTAS": "as NCCL_MIN_NCHANNELS",
    "NCCL_MAX_CTAS": "as NCCL_MAX_NCHANNELS, NVLS too",
    "NCCL_NVLS_ENABLE": "0: no reduction in the NVSwitch",
    "NCCL_COLLNET_ENABLE": "1: reduction in the fabric, where it has it",
    "NCCL_PAT_ENABLE": "0: no PAT",
    "NCCL_NTHREADS": "threads of a Simple or LL kernel: the size below which channels are given up",
    "NCCL_BUFFSIZE": "buffer of Simple: its slices",
    "NCCL_LL_BUFFSIZE": "buffer of LL",
    "NCCL_LL128_BUFFSIZE": "buffer of LL128",
    "NCCL_NCHANNELS_PER_NET_PEER": "channels of a send over the network: how many peers go at once",
    "NCCL_P2P_PXN_LEVEL": "0: sends leave by the sender's own NIC; 1 and 2: through the GPU on the receiver's rail",
    "NCCL_PXN_DISABLE": "1: the same for sends and collectives",
    "NCCL_CROSS_NIC": "0: rings keep to a rail, 1: they may leave it, 2: they leave it if that is faster",
    "NCCL_IB_QPS_PER_CONNECTION": "connections of a channel between two nodes: each has a path of its own",
    "NCCL_IB_SPLIT_DATA_ON_QPS": "1: each slice is split over them; 0: they take turns, which is run the same way",
    "NCCL_P2P_DISABLE": "1: no NVLink or PCIe peer access: GPUs of a node reach each other through host memory",
    "NCCL_P2P_LEVEL": "LOC: as NCCL_P2P_DISABLE=1; other levels: peer access is on",
    "NCCL_SHM_DISABLE": "1: without peer access, over the network",
    "NCCL_GRAPH_FILE": "dump of NCCL's search: channels, order of GPUs and NICs of calls that have all GPUs of their nodes",
    "NCCL_IB_TIMEOUT": "first retransmission timeout, 4.096 us x 2^value (packet engine)",
    "NCCL_IB_RETRY_CNT": "retransmissions before a connection fails (packet engine)",
}
"""Name -> its effect here."""
IGNORED = {
    "NCCL_GRAPH_DUMP_FILE": "written by NCCL; windtunnel export nccl-graph writes one",
    "NCCL_TOPO_DUMP_FILE": "written by NCCL; windtunnel export nccl-topology writes one",
    "NCCL_DEBUG": "prints",
    "NCCL_DEBUG_SUBSYS": "prints",
    "NCCL_DEBUG_FILE": "prints",
    "NCCL_SOCKET_IFNAME": "bootstrap only",
    "NCCL_IB_HCA": "the catalogue says which NICs there are",
    "NCCL_IB_GID_INDEX": "addresses only",
    "NCCL_SOCKET_FAMILY": "addresses only",
    "NCCL_ASYNC_ERROR_HANDLING": "errors only",
}
"""Variables accepted without effect on time, with the reason."""


@dataclass(frozen=True)
class Settings:
    """Parsed variables; the defaults are NCCL's. SHARP (CollNet) is off until NCCL_COLLNET_ENABLE=1, as in NCCL.

    `max_ctas` also bounds the channels of NVLS. `buffers`: bytes of a connection's buffer by protocol, if set. `ib_timeout` is
    the exponent, `qps` connections of a channel, `p2p_pxn` PXN of sends.
    """

    algorithms: frozenset[str] = CHOSEN
    protocols: frozenset[str] = field(default_factory=lambda: frozenset(PROTOCOLS))
    protocols_forced: bool = False
    min_channels: int | None = None
    max_channels: int | None = None
    max_ctas: int | None = None
    nvls: bool = True
    collnet: bool = False
    pat: bool = True
    threads: int | None = None
    buffer: tuple[tuple[str, int], ...] = ()
    channels_per_peer: int | None = None
    pxn: bool = True
    p2p_pxn: bool = True
    cross_nic: int = 2
    qps: int = 1
    peer_access: bool = True
    shared_memory: bool = True
    ib_timeout: int = 20
    ib_retries: int = 7
    graphs: DumpedGraphs | None = None

    @property
    def buffers(self) -> dict[str, int]:
        """Bytes of buffers that differ from NCCL's default."""
        return dict(self.buffer)


DEFAULT = Settings()
_GRAPHS = "NCCL_GRAPH_FILE"


def parse_settings(variables: Mapping[str, str | int] | None, path: str = "settings") -> Settings:
    """Settings from `{"NCCL_ALGO": "Ring,Tree", ...}`; `^` before a list excludes. `path`: the place in the job, for messages.

    Raises UnknownName or SpecError for variables and values that are not supported, FileError for a file that cannot be read.
    """
    if not variables:
        return DEFAULT
    for name in variables:
        if name == "NCCL_TOPO_FILE":
            hint = "windtunnel.load puts it on the node."
            raise SpecError(f"{path}.{name}", variables[name], "a job that windtunnel.load has read", hint)
        if name not in KNOWN and name not in IGNORED:
            raise UnknownName(path, str(name), [*KNOWN, *IGNORED])
    low, high = _whole_number(path, variables, "NCCL_MIN_NCHANNELS"), _whole_number(path, variables, "NCCL_MAX_NCHANNELS")
    if low is not None and high is not None and low > high:
        raise SpecError(f"{path}.NCCL_MIN_NCHANNELS", low, f"at most NCCL_MAX_NCHANNELS ({high})")
    protocols = {p.lower(): p for p in PROTOCOLS}
    buffers = {SIMPLE: "NCCL_BUFFSIZE", LL: "NCCL_LL_BUFFSIZE", LL128: "NCCL_LL128_BUFFSIZE"}
    sizes = {p: _whole_number(path, variables, name, low=4096, high=2**30) for p, name in buffers.items()}
    level = _whole_number(path, variables, "NCCL_P2P_PXN_LEVEL", low=0, high=2)
    off = _switch(path, variables, "NCCL_P2P_DISABLE", False) or _level(path, variables, "NCCL_P2P_LEVEL") == 0
    cross = _whole_number(path, variables, "NCCL_CROSS_NIC", low=0, high=2)
    timeout, retries = (
        _whole_number(path, variables, "NCCL_IB_TIMEOUT", low=1, high=31),
        _whole_number(path, variables, "NCCL_IB_RETRY_CNT", low=0, high=7),
    )
    _switch(path, variables, "NCCL_IB_SPLIT_DATA_ON_QPS", False)
    return Settings(
        algorithms=_list_names(path, "NCCL_ALGO", variables, spellings, CHOSEN),
        protocols=_list_names(path, "NCCL_PROTO", variables, lambda: protocols, PROTOCOLS),
        protocols_forced="NCCL_PROTO" in variables,
        min_channels=_whole_number(path, variables, "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"),
        max_channels=_smaller(path, variables, "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"),
        max_ctas=_whole_number(path, variables, "NCCL_MAX_CTAS"),
        nvls=_switch(path, variables, "NCCL_NVLS_ENABLE", True),
        collnet=_switch(path, variables, "NCCL_COLLNET_ENABLE", False),
        pat=_switch(path, variables, "NCCL_PAT_ENABLE", True),
        threads=_whole_number(path, variables, "NCCL_NTHREADS", low=32, high=1024),
        buffer=tuple((p, n) for p, n in sizes.items() if n is not None),
        channels_per_peer=_whole_number(path, variables, "NCCL_NCHANNELS_PER_NET_PEER"),
        pxn=not _switch(path, variables, "NCCL_PXN_DISABLE", False),
        p2p_pxn=level != 0,
        cross_nic=2 if cross is None else cross,
        qps=_whole_number(path, variables, "NCCL_IB_QPS_PER_CONNECTION", low=1, high=128) or 1,
        peer_access=not off,
        shared_memory=not _switch(path, variables, "NCCL_SHM_DISABLE", False),
        ib_timeout=20 if timeout is None else timeout,
        ib_retries=7 if retries is None else retries,
        graphs=read_graphs(str(variables[_GRAPHS]), f"{path}.{_GRAPHS}") if _GRAPHS in variables else None,
    )


def as_set(cluster: Cluster, settings: Settings) -> Cluster:
    """The cluster as NCCL uses it under these settings. Without peer access GPUs of a node exchange through host memory, at PCIe's
    rate.

    SpecError for a graph file of another node, and if shared memory is off, too: every pair would use the network, which is not
    modelled.
    """
    if settings.graphs is not None:
        check_graphs(settings.graphs, cluster)
    if settings.peer_access:
        return cluster
    if not settings.shared_memory:
        raise SpecError(
            "settings.NCCL_SHM_DISABLE", 1, "0 with NCCL_P2P_DISABLE=1", "GPUs of one node would talk over the network only."
        )
    node = cluster.node
    slow = {"kind": "pcie", "size": node.gpus, "in_switch_reduction": False}
    scale = node.scale_up.model_copy(update=slow)
    return cluster.model_copy(update={"node": node.model_copy(update={"scale_up": scale})})


def _list_names(
    path: str,
    name: str,
    variables: Mapping[str, str | int],
    aliases_of: Callable[[], Mapping[str, str]],
    everything: Iterable[str],
) -> frozenset[str]:
    if name not in variables:
        return frozenset(everything)
    aliases = aliases_of()
    text = str(variables[name]).strip()
    inverse, text = text.startswith("^"), text.removeprefix("^")
    chosen = set()
    for word in text.split(","):
        if word.strip().lower().replace("_", "") not in aliases:
            raise UnknownName(f"{path}.{name}", word.strip(), sorted(aliases))
        chosen.add(aliases[word.strip().lower().replace("_", "")])
    return frozenset(everything) - chosen if inverse else frozenset(chosen)


def _whole_number(path: str, variables: Mapping[str, str | int], *names: str, low: int = 1, high: int = 64) -> int | None:
    for name in names:
        if name in variables:
            text = str(variables[name]).strip()
            if not text.isdecimal() or not text.isascii() or len(text) > 12 or not low <= int(text) <= high:
                raise SpecError(f"{path}.{name}", variables[name], f"a whole number from {low} to {high}")
            return int(text)
    return None


def _smaller(path: str, variables: Mapping[str, str | int], *names: str) -> int | None:
    """The smallest of those that are set."""
    return min((value for name in names if (value := _whole_number(path, variables, name)) is not None), default=None)


def _switch(path: str, variables: Mapping[str, str | int], name: str, default: bool) -> bool:
    if name not in variables:
        return default
    text = str(variables[name]).strip()
    if text not in ("0", "1", "2"):
        raise SpecError(f"{path}.{name}", variables[name], "0 or 1")
    return text != "0"


def _level(path: str, variables: Mapping[str, str | int], name: str) -> int | None:
    """The largest distance at which two devices communicate directly (NCCL's path type): a word or its number."""
    if name not in variables:
        return None
    text = str(variables[name]).strip().upper()
    if text.isdecimal() and text.isascii() and len(text) == 1:
        return int(text)
    if text not in _LEVELS:
        raise UnknownName(f"{path}.{name}", text, [*_LEVELS, "0 to 9"])
    return _LEVELS[text]
