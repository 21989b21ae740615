"""`python -m windtunnel.capture.rank PLAN.json`: runs the script as one rank of the job, on a device without storage."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from windtunnel.capture import stand_ins
from windtunnel.capture.launch import variables_of_accelerate
from windtunnel.capture.load import load_device
from windtunnel.capture.session import CaptureSession
from windtunnel.capture.torch_cuda import Card

BROKE = 9
"""Exit status of a script that raised."""


def main(plan: dict[str, Any]) -> int:
    """Runs the script of the plan; 0, or `BROKE` after its traceback."""
    _close_network()
    card = Card(**{**plan["card"], "capability": tuple(plan["card"]["capability"])})
    torch, device = load_device(Path(plan["library"]), card)
    from windtunnel.capture import torch_groups

    exchange = torch_groups.Exchange(torch, Path(plan["exchange"]), plan["rank"])
    groups = torch_groups.put_in(torch, device, exchange)
    about = {name: plan[name] for name in ("rank", "world", "command", "cluster", "machine", "card")} | {"torch": torch.__version__}
    session = CaptureSession(torch, device, groups, Path(plan["out"]), plan["steps"], about)
    stand_ins.put_in(torch, device, session.notes)
    session.start()
    sys.argv = [plan["script"], *plan["arguments"]]
    try:
        os.environ.update(variables_of_accelerate(plan["launcher"]))
        if plan["module"]:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(plan["script"], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(plan["script"]).resolve().parent))
            runpy.run_path(plan["script"], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            print(f"the script ended with {end.code}", file=sys.stderr)
            return BROKE
    except BaseException as error:
        _tell(error)
        return BROKE
    session.finish()
    return 0


def _tell(error: BaseException) -> None:
    """The traceback without the frames of this package, and the last line of it that is not a library's."""
    own = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((own, "<frozen"))]
    sys.stderr.write("".join(["Traceback (most recent call last):\n", *traceback.format_list(frames)]))
    sys.stderr.write("".join(traceback.format_exception_only(error)))
    scripts = [frame for frame in frames if not stand_ins.is_installed(frame.filename)]
    if scripts:
        sys.stderr.write(f"in {scripts[-1].filename}, line {scripts[-1].lineno}: {scripts[-1].line}\n")


def _close_network() -> None:
    """Connections to other machines are refused: a captured script fetches nothing."""
    connect = socket.socket.connect

    def connect_within(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else ""
        if host and host not in ("localhost", "127.0.0.1", "::1"):
            raise ConnectionRefusedError(f"a captured script has no network: it asked for {host}")
        connect(self, address)

    socket.socket.connect = connect_within  # type: ignore[method-assign, assignment]
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", WANDB_MODE="disabled")


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
