"""Throughput of a TCP connection, timed at the receiver. Loopback test of NICs: RDMA writes with perftest's ib_write_bw if there is
an RDMA device, otherwise TCP over loopback (the result says so). TCP bandwidth between two nodes, in both directions one after
the other; the slower direction counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.units import host_port
from windtunnel.fleet.diagnose.registry import MeasuredFigure, SelfTestOptions
from windtunnel.fleet.wire.sockets import fill_exactly, free_port, read_exactly

CHUNK = 1 << 20
_KEY = 32
_END = b"\x01"
_RETRY = 0.2


@contextlib.contextmanager
def server(options: SelfTestOptions) -> Iterator[socket.socket]:
    """A connection from the peer that knows the key; others are refused. TimeoutError after `limit` seconds."""
    host, port = host_port(options.listen, "--listen")
    until = time.monotonic() + options.limit
    with socket.create_server((host, port)) as listening:
        while True:
            listening.settimeout(max(0.01, until - time.monotonic()))
            connection, _ = listening.accept()
            connection.settimeout(options.limit)
            try:
                if hmac.compare_digest(read_exactly(connection, _KEY), _digest(options.key)):
                    break
            except OSError:
                pass
            connection.close()
        with connection:
            yield connection


@contextlib.contextmanager
def client(options: SelfTestOptions) -> Iterator[socket.socket]:
    """A connection to the peer, which may start to listen later. OSError if it does not within `limit` seconds."""
    host, port = host_port(options.peer, "--peer")
    until = time.monotonic() + options.limit
    while True:
        try:
            connection = socket.create_connection((host, port), max(0.01, until - time.monotonic()))
            break
        except OSError:
            if time.monotonic() + _RETRY > until:
                raise
            time.sleep(_RETRY)
    with connection:
        connection.settimeout(options.limit)
        connection.sendall(_digest(options.key))
        yield connection


def push(connection: socket.socket, seconds: float) -> float:
    """Sends for `seconds`; returns bytes per second as timed by the receiver."""
    body, until = bytes(CHUNK), time.monotonic() + seconds
    sent = False
    while not sent or time.monotonic() < until:
        connection.sendall(body)
        sent = True
    connection.sendall(_END + bytes(CHUNK - 1))
    return float(json.loads(read_exactly(connection, _KEY)))


def pull(connection: socket.socket) -> float:
    """Receives what `push` sends; returns bytes per second after the first chunk, and sends the rate back."""
    buffer, total, begun = bytearray(CHUNK), 0, 0.0
    while True:
        fill_exactly(connection, memoryview(buffer))
        now = time.perf_counter()
        if total == 0:
            begun = now
        total += CHUNK
        if buffer[0]:
            break
    rate = (total - CHUNK) / max(now - begun, 1e-9)
    connection.sendall(f"{rate:.6e}".encode().ljust(_KEY))
    return rate


def _digest(key: str) -> bytes:
    return hashlib.sha256(b"windtunnel pair " + key.encode()).digest()


DEVICES = Path("/sys/class/infiniband")
PROGRAM = "ib_write_bw"


def loopback(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second of the slowest RDMA device, or of TCP on loopback."""
    devices = sorted(entry.name for entry in DEVICES.iterdir()) if DEVICES.is_dir() else []
    if devices and shutil.which(PROGRAM):
        rates = [(_rdma(device, options), device) for device in devices]
        rate, device = min(rates)
        return MeasuredFigure(rate, f"RDMA writes, {device} to itself")
    lacks = "no RDMA device" if not devices else f"no {PROGRAM}"
    return MeasuredFigure(_loopback(options), f"TCP over loopback, {lacks}: not a test of a NIC", stands_in=True)


def _rdma(device: str, options: SelfTestOptions) -> float:
    """Bytes per second of one device. RuntimeError with perftest's output if it fails."""
    arguments = ["-d", device, "-F", "--report_gbits", "-D", str(max(1, round(options.seconds)))]
    listening = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + options.limit / 2
        while True:
            ran = subprocess.run(
                [PROGRAM, *arguments, "localhost"], capture_output=True, text=True, timeout=options.limit, check=False
            )
            if ran.returncode == 0:
                return bandwidth_of(ran.stdout)
            if time.monotonic() > until or listening.poll() is not None:
                raise RuntimeError(f"{PROGRAM} on {device}: {(ran.stderr or ran.stdout).strip()[-300:]}")
            time.sleep(0.2)
    finally:
        listening.kill()
        listening.wait()


def bandwidth_of(text: str) -> float:
    """The average rate in perftest's output with --report_gbits (columns: bytes, iterations, peak, average, messages), in bytes per
    second.
    """
    rows = [line.split() for line in text.splitlines()]
    rates = [float(row[3]) for row in rows if len(row) >= 5 and row[0].isdigit() and row[1].isdigit()]
    if not rates:
        raise RuntimeError(f"{PROGRAM} printed no rate: {text.strip()[-200:]}")
    return rates[-1] * 1e9 / 8


def _loopback(options: SelfTestOptions) -> float:
    """Bytes per second of a TCP connection to this machine itself."""
    port = free_port()
    there = replace(options, listen=f"127.0.0.1:{port}")
    thread = threading.Thread(target=_take, args=(there,), daemon=True)
    thread.start()
    with client(replace(options, peer=there.listen)) as connection:
        rate = push(connection, options.seconds)
    thread.join(options.limit)
    return rate


def _take(options: SelfTestOptions) -> None:
    with server(options) as connection:
        pull(connection)


def between_nodes(options: SelfTestOptions) -> MeasuredFigure:
    """Bytes per second of the slower direction, on both sides. SpecError without --listen or --peer."""
    if options.listen:
        with server(options) as connection:
            there, back = pull(connection), push(connection, options.seconds / 2)
            names = connection.getpeername()[0], connection.getsockname()[0]
    elif options.peer:
        with client(options) as connection:
            there, back = push(connection, options.seconds / 2), pull(connection)
            names = connection.getsockname()[0], connection.getpeername()[0]
    else:
        raise SpecError("pair", Nothing(), "--listen HOST:PORT on one node and --peer HOST:PORT on the other")
    backend = f"TCP {names[0]} to {names[1]}"
    return MeasuredFigure(min(there, back), backend, note=f"there {there:.4g}, back {back:.4g} B/s")
