"""A job of forked ranks whose every number is the step: whatever is loaded says from which step it came."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.faults.checkpoints.points import STAGE, die, patch_stage
from windtunnel.fleet.checkpoint import flush_process
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.checkpoint.commit import LostSaveError
from windtunnel.fleet.wire.sockets import free_port

STEPS = 6
TENSORS, NUMBERS = 6, 1 << 15


@dataclass(frozen=True)
class Fault:
    """What happens to which step, in which process, and who dies: self or all."""

    point: str = "none"
    step: int = 0
    whom: str = "self"
    rank: int = 0


def state_of(rank: int) -> dict[str, Any]:
    """Tensors that all ranks share, one that each has alone, and a plain number."""
    return {"weights": {str(at): torch.zeros(NUMBERS) for at in range(TENSORS)}, f"own{rank}": torch.zeros(NUMBERS), "at": 0}


def set_to(state: dict[str, Any], step: int) -> None:
    """Every number becomes the step."""
    for value in (*state["weights"].values(), *(one for key, one in state.items() if key.startswith("own"))):
        value.fill_(step)
    state["at"] = step


def says(state: dict[str, Any]) -> set[float]:
    """The steps from which a state's numbers come."""
    values = [*state["weights"].values(), *(one for key, one in state.items() if key.startswith("own"))]
    return {float(state["at"])} | {float(x) for value in values for x in torch.unique(value)}


def _rank(work: Path, rank: int, world: int, port: int, fault: Fault) -> None:
    torch.set_num_threads(1)
    pids = work / "pids"
    if fault.point in STAGE and fault.rank == rank:
        patch_stage(fault.point, fault.step, lambda: die(pids, fault.whom))
    about = [fault.point, str(fault.step), fault.whom, str(pids), str(fault.rank)]
    flush_process.COMMAND = [sys.executable, "-m", "tests.faults.checkpoints.flusher", *about, "--"]
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    checkpointer = Checkpointer(work / "checkpoints", keep=2, linger=20.0, within=20.0)
    state = state_of(rank)
    first = checkpointer.load(state) or 0
    report = {"loaded": first, "says": sorted(says(state)), "passed": checkpointer.last_load and checkpointer.last_load.passed_over}
    _told(work, rank, report)
    checkpointer.prepare(state)
    for step in range(first + 1, STEPS + 1):
        set_to(state, step)
        checkpointer.save(step, state)
        time.sleep(0.01)
    newest = checkpointer.wait()
    _told(work, rank, {**report, "newest": newest, "failed": checkpointer.failed})
    with contextlib.suppress(LostSaveError):  # a fault of the last save; the next attempt says what is left
        checkpointer.close()
    dist.destroy_process_group()


def _told(work: Path, rank: int, report: dict[str, Any]) -> None:
    beside = work / f"report-{rank}.tmp"
    beside.write_text(json.dumps(report))
    beside.rename(work / f"report-{rank}.json")


def start(work: Path, world: int, fault: Fault) -> list[int]:
    """Forks the ranks; their process ids."""
    for path in work.glob("report-*"):
        path.unlink()
    port = free_port()
    (work / "pids").write_text("")
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                if not os.environ.get("FAULTS_LOUD"):
                    os.dup2(os.open(work / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
                _rank(work, rank, world, port, fault)
                code = 0
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)
        pids.append(pid)
    with (work / "pids").open("a") as file:
        file.write("".join(f"{pid}\n" for pid in pids))
    return pids


def over(pids: list[int], within: float = 90.0) -> list[int]:
    """Waits; when one rank dies the others are killed, as an agent does. Their exit statuses; -9 for those killed."""
    left, codes, end = set(pids), {}, time.monotonic() + within
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
        if left and (any(codes.values()) or time.monotonic() > end):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def reports(work: Path, world: int) -> list[dict[str, Any]]:
    """What the ranks said last."""
    return [json.loads(path.read_text()) if (path := work / f"report-{rank}.json").exists() else {} for rank in range(world)]
