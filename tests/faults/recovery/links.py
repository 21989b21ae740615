"""Two nodes of a job as two network namespaces, with a cable for the driver's orders, and a network for the ranks' data through a
switch (a bridge in a third namespace), which can be taken down at one node or have connections cut. They are the job's own and end
with it; nothing of the machine's network is touched."""

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
_SYSFS = ("sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh")
ALONE = ("unshare", "--net", "--mount", "--", *_SYSFS)
"""Before a command that gets a network of its own, and sees the ports of that one under /sys."""


def possible() -> bool:
    """Whether this user may make networks."""
    tools = all(shutil.which(tool) for tool in ("ip", "unshare", "nsenter"))
    return tools and subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0


def entering(pid: int) -> tuple[str, ...]:
    """Before a command that runs in the network of the process `pid`."""
    return ("nsenter", "--target", str(pid), "--net", "--mount", "--")


def lay() -> int:
    """Within a network of its own: makes the second node's, the switch's, and cables. The second node's process that holds its
    network; it ends with this one."""
    node, switch = _held(), _held()
    here: tuple[str, ...] = ()
    there, between = entering(node), entering(switch)
    for where in (here, there):
        _do("ip link set lo up", where)
    _do("ip link add switch type bridge", between)
    _do("ip link set switch up", between)
    _cable((here, ORDERS), (there, ORDERS), node)
    for number, where in enumerate((here, there)):
        _cable((where, DATA), (between, f"port-{number}"), switch)
        _do(f"ip link set port-{number} master switch up", between)
    for name, net in _NETS.items():
        for where, last in ((here, 1), (there, 2)):
            _do(f"ip addr add {net}.{last}/24 dev {name}", where)
            _do(f"ip link set {name} up", where)
    return node


def _cable(one: tuple[tuple[str, ...], str], other: tuple[tuple[str, ...], str], holder: int) -> None:
    """Joins two ports, each (before a command there, name); `holder` is the process of the other."""
    _do(f"ip link add {one[1]} type veth peer name far", one[0])
    _do(f"ip link set far netns {holder}", one[0])
    _do(f"ip link set far name {other[1]}", other[0])


def _held() -> int:
    """A process that holds a network of its own."""
    wait = "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen([*ALONE, sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder.pid


def turn(pid: int, up: bool) -> None:
    """Takes the port to the data network down, or up again, at the node of the process `pid`."""
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
