"""Ranks for the tests of start-up, forked from this process (`forked_ranks`). gloo on loopback."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # else each second rank imports it by itself, for half a second
import torch.distributed as dist
import torch.distributed.tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve  # noqa: E402

from windtunnel.fleet.startup import measure  # noqa: E402
from windtunnel.fleet.startup.groups import init_mesh  # noqa: E402


def run(body: str, port: int) -> None:
    """`body`, with `rank`, `world`, `store` and `init_mesh` at hand; the store is at `port`."""
    store = dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=60), wait_for_workers=False)
    given = {
        "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]), "store": store, "init_mesh": init_mesh,
        "dist": dist, "torch": torch, "timedelta": timedelta,
    }  # fmt: skip
    exec(body, given)


def start(case: dict[str, object]) -> None:
    """Says what `measure` reads of the process that it starts."""
    print(json.dumps(measure._run(measure.StartCase(**case))))  # type: ignore[arg-type]


if __name__ == "__main__":
    serve({"run": run, "start": start})
