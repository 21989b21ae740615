"""Two nodes of a job as two network namespaces, with a network for the driver's orders and one for the ranks' data, which can be
taken down or have connections cut. They are the job's own and end with it; nothing of the machine's network is touched."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

ORDERS, DATA = "orders", "data"
DRIVER = "10.77.1.1"
"""The driver's address, and the first node's, in the network of orders."""
_NETS = {ORDERS: "10.77.1", DATA: "10.77.2"}
_PIDFD_GETFD = 438
ALONE = ("unshare", "--net", "--")
"""Before a command that gets a network of its own."""


def possible() -> bool:
    """Whether this user may make networks."""
    tools = all(shutil.which(tool) for tool in ("ip", "unshare", "nsenter"))
    return tools and subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0


def entering(pid: int) -> tuple[str, ...]:
    """Before a command that runs in the network of the process `pid`."""
    return ("nsenter", "--target", str(pid), "--net", "--")


def lay() -> int:
    """Within a network of its own: makes the second node's, and cables to it. The process that holds it; it ends with this one."""
    wait = "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen([*ALONE, sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    there = entering(holder.pid)
    _do("ip link set lo up")
    _do("ip link set lo up", there)
    for name, net in _NETS.items():
        _do(f"ip link add {name} type veth peer name far")
        _do(f"ip link set far netns {holder.pid}")
        _do(f"ip link set far name {name}", there)
        for where, last in (((), 1), (there, 2)):
            _do(f"ip addr add {net}.{last}/24 dev {name}", where)
            _do(f"ip link set {name} up", where)
    return holder.pid


def turn(pid: int, up: bool) -> None:
    """Takes the data network down, or up again, at the end of the process `pid`."""
    _do(f"ip link set {DATA} {'up' if up else 'down'}", entering(pid))


def cut(pid: int) -> int:
    """Shuts all connections to the other node down that the process `pid` has in the data network; how many."""
    handle, found = os.pidfd_open(pid), 0
    try:
        for one in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if not os.readlink(one).startswith("socket:"):
                    continue
                copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, handle, int(one.name), 0)
                if copy < 0:
                    continue
                with socket.socket(fileno=copy) as connection:
                    if connection.family == socket.AF_INET and _between(connection):
                        connection.shutdown(socket.SHUT_RDWR)
                        found += 1
            except OSError:
                continue
    finally:
        os.close(handle)
    return found


def _between(found: socket.socket) -> bool:
    """Whether a socket connects the two nodes over the data network."""
    ends = {found.getsockname()[0], found.getpeername()[0]}
    return ends == {f"{_NETS[DATA]}.1", f"{_NETS[DATA]}.2"}


def _do(words: str, where: tuple[str, ...] = ()) -> None:
    subprocess.run([*where, *words.split()], check=True, capture_output=True)
