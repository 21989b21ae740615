"""Starts a mesh with real processes on this machine, over gloo on loopback, and measures it.

`python -m windtunnel.fleet.startup.measure '{"mesh": "dp=2,pp=2,tp=2", …}'` prints one line of JSON. It is a separate process
because it imports torch once and forks the ranks before any thread exists. Store servers run in another process, so that no rank
serves the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass, field
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.fleet.startup.layout import Operations, StartCounts, World, parse_mesh
from windtunnel.fleet.wire.sockets import free_port

LIMIT = timedelta(seconds=300)


@dataclass(frozen=True)
class StartCase:
    """A start to measure."""

    mesh: str
    path: str = "ordered"
    """"torch" (init_process_group and init_device_mesh) or "ordered" (`init_mesh`)."""
    store: str = "tcp"
    world: World = "full"
    ranks_per_node: int = 8
    count: bool = False
    """Counts operations and checks every group by an all-reduce; the seconds of such a run are not meaningful."""


@dataclass(frozen=True)
class StartRun:
    """A measured start."""

    seconds: float
    """From the common start until the last rank was ready."""
    counts: StartCounts
    """Operations of all ranks."""
    mebibytes: float = field(default=0.0)
    """Resident memory of the largest rank, MiB."""


def measure(case: StartCase) -> StartRun:
    """Runs `case` in a fresh interpreter. WindtunnelError with the ranks' output if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "windtunnel.fleet.startup.measure", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise WindtunnelError(f"the start of {case.mesh} failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    counts = StartCounts(Operations.of(found["shared"]), Operations.of(found["local"]))
    return StartRun(found["seconds"], counts, found["mebibytes"])


@contextlib.contextmanager
def servers(case: StartCase, nodes: int) -> Iterator[tuple[int, list[int]]]:
    """Ports of the shared store and of each node's; their processes end with the block."""
    with contextlib.ExitStack() as ending:
        if case.store == "redis":
            port = free_port()
            folder = ending.enter_context(tempfile.TemporaryDirectory())
            command = [
                "redis-server",
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
                folder,
            ]
            try:
                server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            except FileNotFoundError:
                raise SpecError("--store", "redis", "tcp, hierarchical", "redis-server is not installed.") from None
            ending.callback(server.wait)
            ending.callback(server.kill)
            yield port, [0] * nodes
            return
        there, here = os.pipe()
        child = os.fork()
        if child == 0:
            _serve(here, 1 + (nodes if case.store == "hierarchical" else 0))
        ending.callback(os.waitpid, child, 0)
        ending.callback(os.kill, child, signal.SIGKILL)
        os.close(here)
        with os.fdopen(there) as pipe:
            ports = json.loads(pipe.readline())
        yield ports[0], ports[1:] or [0] * nodes


def _serve(pipe: int, stores: int) -> None:
    import torch.distributed as dist

    servers = [dist.TCPStore("127.0.0.1", 0, None, True, LIMIT, wait_for_workers=False) for _ in range(stores)]
    os.write(pipe, (json.dumps([one.port for one in servers]) + "\n").encode())
    while True:
        signal.pause()


def _start(case: StartCase, store: Any, rank: int) -> dict[str, Any]:
    """Starts the mesh; returns its groups by axis."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from windtunnel.fleet.startup.groups import init_mesh

    layout = parse_mesh(case.mesh)
    if case.path == "ordered":
        return init_mesh(layout.names, layout.shape, store=store, rank=rank, world=case.world, timeout=LIMIT).groups
    dist.init_process_group("gloo", store=store, rank=rank, world_size=layout.world, timeout=LIMIT)
    mesh = init_device_mesh("cpu", layout.shape, mesh_dim_names=layout.names)
    return {name: mesh.get_group(name) for name in layout.names}


def _open_store(case: StartCase, rank: int, port: int, local_port: int) -> tuple[Any, Callable[[], StartCounts]]:
    """The rank's store, and a function that returns its operations so far."""
    from windtunnel.fleet.startup.store import CountingStore, NodeStore, StorePlace, open_store

    world = parse_mesh(case.mesh).world
    place = StorePlace(
        "127.0.0.1", port, rank, world, case.ranks_per_node, local_port, False, f"start-{port}-{os.getppid()}", LIMIT
    )
    store = open_store(case.store, place)
    if not case.count:
        return store, lambda: StartCounts(Operations())
    if isinstance(store, NodeStore):
        local = CountingStore(store.local)
        shared = CountingStore(store.shared_store) if rank % case.ranks_per_node == 0 else None
        opened = (lambda: shared) if shared is not None else (lambda: CountingStore(store.shared_store))
        counted = NodeStore(local, opened, rank, world, case.ranks_per_node)
        return counted, lambda: StartCounts(shared.operations if shared is not None else Operations(), local.operations)
    only = CountingStore(store)
    return only, lambda: StartCounts(only.operations)


def _rank(case: StartCase, rank: int, ports: tuple[int, int], gates: tuple[int, int], answer: int) -> None:
    """A forked rank: connects, waits for the first gate, starts, reports, waits for the second gate and exits."""
    import torch
    import torch.distributed as dist

    store, counted = _open_store(case, rank, *ports)
    os.write(answer, b"ready\n")
    os.read(gates[0], 1)
    groups = _start(case, store, rank)
    end = time.monotonic()
    counts = counted()
    if case.count:
        for axis, group in groups.items():
            total = torch.tensor([float(rank)])
            dist.all_reduce(total, group=group)
            if total.item() != sum(dist.get_process_group_ranks(group)):
                raise WindtunnelError(f"the group of {axis} adds up to {total.item()}")
    with open("/proc/self/status", encoding="ascii") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    tables = {"shared": counts.shared.table(), "local": counts.local.table()}
    os.write(answer, (json.dumps({"end": end, "mebibytes": resident / 1024} | tables) + "\n").encode())
    os.read(gates[1], 1)


def _fork_rank(case: StartCase, rank: int, ports: tuple[int, int], gates: list[tuple[int, int]]) -> tuple[int, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _, opener in gates:
                os.close(opener)
            os.close(reading)
            _rank(case, rank, ports, (gates[0][0], gates[1][0]), writing)
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writing)
    return child, os.fdopen(reading)


def _run(case: StartCase) -> dict[str, Any]:
    """Forks all ranks of a case and collects their results."""
    import torch.distributed  # noqa: F401  once, for all ranks

    world = parse_mesh(case.mesh).world
    nodes = -(-world // case.ranks_per_node)
    with servers(case, nodes) as (port, local_ports):
        gates = [os.pipe(), os.pipe()]
        children: list[tuple[int, Any]] = []
        for rank in range(world):
            children.append(_fork_rank(case, rank, (port, local_ports[rank // case.ranks_per_node]), gates))
        try:
            for _, pipe in children:
                if pipe.readline() != "ready\n":
                    raise WindtunnelError("a rank ended before it began")
            begin = time.monotonic()
            os.close(gates[0][1])
            answers = [json.loads(pipe.readline() or "null") for _, pipe in children]
            os.close(gates[1][1])
        finally:
            for child, _ in children:
                if sys.exc_info()[0] is not None:
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    if None in answers:
        raise WindtunnelError("a rank failed")
    total = {part: sum((Operations.of(one[part]) for one in answers), Operations()).table() for part in ("shared", "local")}
    return {"seconds": max(one["end"] for one in answers) - begin, "mebibytes": max(one["mebibytes"] for one in answers), **total}


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(_run(StartCase(**json.loads(sys.argv[1])))) + "\n")
    except WindtunnelError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from error
