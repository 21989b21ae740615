"""TCP bandwidth between two nodes, in both directions one after the other; the slower direction counts."""

from __future__ import annotations

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.fleet.diagnose import tcp
from windtunnel.fleet.diagnose.result import MeasuredFigure, SelfTestOptions


def measure(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second of the slower direction, on both sides. SpecError without --listen or --peer."""
    if options.listen:
        with tcp.server(options) as connection:
            there, back = tcp.pull(connection), tcp.push(connection, options.seconds / 2)
            names = connection.getpeername()[0], connection.getsockname()[0]
    elif options.peer:
        with tcp.client(options) as connection:
            there, back = tcp.push(connection, options.seconds / 2), tcp.pull(connection)
            names = connection.getsockname()[0], connection.getpeername()[0]
    else:
        raise SpecError("pair", Nothing(), "--listen HOST:PORT on one node and --peer HOST:PORT on the other")
    backend = f"TCP {names[0]} to {names[1]}"
    return MeasuredFigure(min(there, back), backend, note=f"there {there:.4g}, back {back:.4g} B/s")
