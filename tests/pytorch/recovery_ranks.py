"""`job(FOLDER, --world N --fault STEP:RANK:KIND …)`: data-parallel ranks that fail once at each fault, under a parent that starts a
rank anew which was killed. The parents are forked from this process (`forked_ranks`), and fork their ranks: torch is imported once.

KIND: `kill` in the step, `raise` in the step, `late` (raised after the optimizer has changed the weights), `connect` (killed while
the ranks meet again), `always` (raised at each try). Each rank writes when it failed and when it finished steps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # else each rank's optimizer imports it
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve  # noqa: E402

from windtunnel.fleet.recovery import train_through_faults  # noqa: E402

torch.set_num_threads(1)


class Rank:
    """One rank: a model with dropout, DDP or reduced by hand, and its faults."""

    def __init__(self, given: argparse.Namespace, rank: int) -> None:
        self.given, self.rank = given, rank
        self.faults = [tuple(text.split(":")) for text in given.fault]
        self.events = (given.folder / f"events-{rank}.jsonl").open("a", encoding="utf-8")
        torch.manual_seed(7 + (rank if given.sharded else 0))
        self.model = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 32), nn.Linear(32, 8))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.9)
        self.meetings = 0

    def say(self, event: str, step: int) -> None:
        self.events.write(json.dumps({"event": event, "step": step, "unix": time.time(), "pid": os.getpid()}) + "\n")
        self.events.flush()

    def fail(self, step: int, *kinds: str) -> None:
        for when, who, kind in self.faults:
            if (int(when), int(who)) != (step, self.rank) or kind not in kinds:
                continue
            mark = self.given.folder / f"failed-{when}-{who}-{kind}"
            if mark.exists() and kind != "always":
                continue
            mark.touch()
            self.say("fault", step)
            if kind in ("kill", "connect"):
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"shard {step} is corrupt")

    def connect(self) -> Any:
        self.meetings += 1
        if any(self.given.folder.glob("failed-*")):
            self.fail(0, "connect")
        network = DistributedDataParallel(self.model, bucket_cap_mb=0.005) if self.given.ddp else self.model

        def step(number: int) -> None:
            self.fail(number, "kill", "raise", "always")
            self.optimizer.zero_grad()
            chance = torch.Generator().manual_seed(1000 * number + self.rank)
            network(torch.randn(16, 32, generator=chance)).square().mean().backward()
            for weight in self.model.parameters():
                if not self.given.ddp and not self.given.sharded:
                    dist.all_reduce(weight.grad)
            if self.given.sharded:
                dist.all_reduce(torch.ones(1))
            self.optimizer.step()
            self.schedule.step()
            self.fail(number, "late")
            time.sleep(self.given.ms / 1000)
            self.say("step", number)

        return step

    def train(self) -> None:
        peers = [self.rank] if self.given.sharded else None
        state = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        train_through_faults(
            self.connect,
            state,
            self.given.steps,
            seed=3,
            every=self.given.every,
            peers=peers,
            timeout=self.given.timeout,
            backend="gloo",
        )
        weights = b"".join(one.detach().numpy().tobytes() for one in self.model.parameters())
        self.say(f"weights {hashlib.md5(weights).hexdigest()}", self.given.steps)
        dist.destroy_process_group()


def fork(given: argparse.Namespace, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(given.folder / f"rank-{rank}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(given.world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(given.port))
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        Rank(given, rank).train()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def keep_store(given: argparse.Namespace) -> int:
    """A process with the ranks' store, which outlives them."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        while True:
            signal.pause()
    given.port = int(os.read(read, 16))
    return pid


def job(*words: str) -> None:
    """Says the exit codes of each rank's processes once all have ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--ms", type=float, default=0.0)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--sharded", action="store_true")
    given = parser.parse_args(words)
    given.folder.mkdir(parents=True, exist_ok=True)
    store = keep_store(given)
    ranks = {fork(given, rank): rank for rank in range(given.world)}
    codes: dict[int, list[int]] = {rank: [] for rank in range(given.world)}
    while ranks:
        pid, status = os.wait()
        if pid == store:
            raise RuntimeError("the store has ended")
        rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
        codes[rank].append(code)
        if code == -signal.SIGKILL:
            ranks[fork(given, rank)] = rank
    os.kill(store, signal.SIGKILL)
    print(json.dumps({"codes": [codes[rank] for rank in range(given.world)]}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve({"job": job})
