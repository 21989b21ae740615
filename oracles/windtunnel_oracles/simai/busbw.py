"""Bus bandwidth of a call as SimAI's analytical mode takes it: always a ring, in single precision (calbusbw.cc, release 1.6)."""

from __future__ import annotations

from windtunnel_oracles.simai.setting import SimaiSetting, single

NO_RATE = -1.0
"""What SimAI computes with where less than one NIC is left for a GPU."""


def bus_bandwidth(setting: SimaiSetting, call: str, nodes: int, gpus: int, nics: float) -> tuple[float, bool]:
    """GB/s of a call over `nodes` servers with `gpus` ranks and `nics` NICs in each, and whether NVLink bounds it."""
    nvlink, nic = setting.nvlink_rate, setting.nic_rate
    if gpus * nodes == 1:
        return 0.0, False
    if gpus < 1 or nics <= 0 or nodes < 1:
        return NO_RATE, False
    out = single(nic * nics)
    if call == "alltoall":
        if nodes == 1:
            return nvlink, True
        rate = single(single(single(out / gpus) * (gpus * nodes - 1)) / ((nodes - 1) * gpus))
        return rate, gpus > 1 and _ring(nvlink, out, gpus)[1]
    if nodes == 1:
        return nvlink, False
    return (out, False) if gpus == 1 else _ring(nvlink, out, gpus)


def _ring(nvlink: float, out: float, gpus: int) -> tuple[float, bool]:
    """The slower of NVLink and the NICs; NVLink counts g/(g-1) where the NICs together are faster than it (rings change NICs)."""
    inside = single(single(nvlink * gpus) / (gpus - 1)) if out > nvlink else nvlink
    return (inside, True) if inside < out else (out, False)


def group_rate(
    setting: SimaiSetting, call: str, group: str, tp: int, ep: int, ranks: int, parts: bool = False
) -> tuple[float, bool] | None:
    """Bandwidth of a call of a TP, EP, DP or DP_EP group; None where SimAI lets it take no time. NICs of a group are a whole number
    there; `parts` counts fractions of a NIC."""
    servers, nics = setting.gpus_per_server, setting.nics_per_server

    def share(width: int) -> float:
        return nics / width if parts else nics // width

    if group == "TP":
        if tp <= servers:
            return bus_bandwidth(setting, call, 1, tp, nics)
        return bus_bandwidth(setting, call, tp // servers, servers, nics)
    if ranks <= 1:
        return None
    if group == "EP":
        if tp * ranks <= servers:
            return bus_bandwidth(setting, call, 1, servers // tp, nics)
        own = share(servers) if tp > servers else share(tp)
        return bus_bandwidth(setting, call, tp * ranks // servers, max(1, servers // tp), own)
    if group in ("DP", "DP_EP"):
        width = tp if group == "DP" else tp * ep
        if width <= servers:
            return bus_bandwidth(setting, call, ranks, servers // width, share(width))
        return bus_bandwidth(setting, call, ranks, 1, share(servers))
    return None
