"""Watched scripts on real ranks that are forked from this process (`forked_ranks`), as a keeper forks them. gloo on loopback."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # noqa: F401 - each rank would import it by itself, as the two before it

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402
from windtunnel.fleet.launch.command import environment  # noqa: E402


def run(script: str, arguments: list[str], folder: str, name: str = "real", **variables: str) -> None:
    """The script on CPUs, under the monitor, whose files are those of the run `name` in `folder`."""
    os.environ.update(environment(Path(folder), name, base={}), DEVICE="cpu", LOCAL_RANK=os.environ["RANK"])
    os.environ.update(variables)
    watch.start()
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    serve({"run": run})
