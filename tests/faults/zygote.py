"""A process that has imported torch once and forks ranks from then on: a run of eight ranks starts in a tenth of a second.

Speaks lines of JSON on stdin and stdout: {"job": …, "rank": r} → {"pid": p}; {"wait": p} → {"status": s}.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tests.faults.training import Job, train
from tests.forked_ranks import leave_after


class Zygote:
    """Starts ranks and waits for them. `prefix`: a command that the process runs under, such as `ip netns exec NAME`."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.faults.zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        self._ask({})

    def start(self, job: Job, rank: int) -> int:
        """Forks a rank; its process id."""
        return int(self._ask({"job": vars(job), "rank": rank})["pid"])

    def wait(self, pid: int, seconds: float) -> int | None:
        """The exit status of a rank, as os.waitpid gives it; None if it still runs after so many seconds."""
        answer = self._ask({"wait": pid, "seconds": seconds})["status"]
        return None if answer is None else int(answer)

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _serve() -> None:
    import torch
    import torch.distributed

    from windtunnel.fleet import watch  # noqa: F401 - what the children inherit

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # imports a second's worth of modules

    gc.collect()
    gc.freeze()  # the modules of torch: in a child a collection would take a tenth of a second by itself
    children: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {}
        if "job" in asked:
            values = {**asked["job"], "clock": tuple(asked["job"]["clock"])}
            pid = os.fork()
            if pid == 0:
                _child(Job(**values), int(asked["rank"]))
            children.add(pid)
            answer = {"pid": pid}
        elif "wait" in asked:
            answer = {"status": _waited(int(asked["wait"]), float(asked["seconds"]))}
            if answer["status"] is not None:
                children.discard(int(asked["wait"]))
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _child(job: Job, rank: int) -> NoReturn:
    """Never returns. Output goes to the log of the rank."""
    log = os.open(os.path.join(job.folder, f"rank-{rank}.log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    leave_after(lambda: train(job, rank))


def _waited(pid: int, seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > until:
            return None
        time.sleep(0.005)


if __name__ == "__main__":
    _serve()
