"""Loopback test of NICs: RDMA writes with perftest's ib_write_bw if there is an RDMA device, otherwise TCP over loopback (the
result says so).
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

from windtunnel.fleet.diagnose import tcp
from windtunnel.fleet.diagnose.result import MeasuredFigure, SelfTestOptions
from windtunnel.fleet.wire.sockets import free_port

DEVICES = Path("/sys/class/infiniband")
PROGRAM = "ib_write_bw"


def measure(options: SelfTestOptions) -> MeasuredFigure:
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
    with tcp.client(replace(options, peer=there.listen)) as connection:
        rate = tcp.push(connection, options.seconds)
    thread.join(options.limit)
    return rate


def _take(options: SelfTestOptions) -> None:
    with tcp.server(options) as connection:
        tcp.pull(connection)
