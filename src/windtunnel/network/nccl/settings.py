"""NCCL_* variables that windtunnel honours; they come from the job or the caller, never from the process environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.files import table_beside
from windtunnel.network.algorithm import CHOSEN, spellings
from windtunnel.network.nccl.constants import LL, LL128, PROTOCOLS, SIMPLE
from windtunnel.network.nccl.graph_file import DumpedGraphs, check_graphs, read_graphs
from windtunnel.spec.machine import Cluster

_LEVELS = {"LOC": 0, "NVL": 1, "PIX": 2, "PXB": 3, "PHB": 4, "SYS": 5}


def list_variables() -> dict[str, dict[str, str]]:
    """Variables of settings.toml: "known" by their effect here, "ignored" by why they have none on time."""
    return table_beside(__file__)


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
        if not any(name in list_variables()[kind] for kind in ("known", "ignored")):
            raise UnknownName(path, str(name), [*list_variables()["known"], *list_variables()["ignored"]])
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
