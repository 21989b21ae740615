"""Network fidelities: how the time of traffic between GPUs is computed. The only list of them."""

from __future__ import annotations

from windtunnel.base.errors import SpecError, UnknownName

CLOSED, FLOW, PACKET = "closed", "flow", "packet"

FIDELITIES: dict[str, str] = {
    CLOSED: "closed form: a formula for each call, alone on its links",
    FLOW: "fluid flows that share the links of the fabric max-min fairly",
    PACKET: "packets, with buffers, congestion control and flow control",
}
"""Name -> what it simulates, cheapest first."""


def check_fidelity(name: str, path: str = "--network") -> str:
    """`name`, if it is a fidelity; else UnknownName at `path`."""
    if name not in FIDELITIES:
        raise UnknownName(path, name, list(FIDELITIES))
    return name


def check_threads(threads: int) -> None:
    """Raises SpecError for a number of threads that the packet engine does not take."""
    if not 1 <= threads <= 1024:
        raise SpecError("--threads", threads, "1 to 1024")
