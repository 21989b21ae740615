"""`python -m windtunnel.capture.rank SERVER.json`: loads PyTorch on a device without storage, and runs scripts as ranks on it."""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from windtunnel.capture import stand_ins
from windtunnel.capture.build import load_device
from windtunnel.capture.launch import variables_of_accelerate
from windtunnel.capture.session import CaptureSession
from windtunnel.capture.torch_cuda import Card

BROKE = 9
"""Exit status of a script that raised."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled"}


def serve(library: str, card: dict[str, Any]) -> None:
    """Forks a rank for each line of stdin, which names the file of its plan, until it ends; `stop` ends those that run. The exit
    status of a rank comes into a file beside its plan."""
    _close_network()
    torch, device = load_device(Path(library), Card(**{**card, "capability": tuple(card["capability"])}))
    for name in ("torch._dynamo", "torch.distributed.checkpoint"):  # which each rank needs: optimizers, and what is left out
        import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a rank would touch, and so copy, all modules of torch
    running: dict[int, Path] = {}
    text = b""
    while True:
        if select.select([0], [], [], 0.02 if running else None)[0]:
            read = os.read(0, 1 << 16)
            *lines, text = (text + read).split(b"\n")
            for line in lines:
                if line == b"stop":
                    _kill(running)
                else:
                    running[_fork(torch, device, Path(line.decode()))] = Path(line.decode())
            if not read:
                break
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                file = running.pop(pid).with_suffix(".part")
                file.write_text(str(os.waitstatus_to_exitcode(status)))
                file.replace(file.with_suffix(".ended"))
    _kill(running)


def _kill(running: dict[int, Path]) -> None:
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    running.clear()


def _fork(torch: Any, device: Any, file: Path) -> int:
    """The process of a rank."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = BROKE
    try:
        plan = json.loads(file.read_text())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(Path(plan["out"]).with_suffix(".log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.clear()
        os.environ.update(plan["environment"] | _OFFLINE)
        os.chdir(plan["folder"])
        status = run(torch, device, plan)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(torch: Any, device: Any, plan: dict[str, Any]) -> int:
    """Runs the script of the plan; 0, or `BROKE` after its traceback."""
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
    os.environ.update(_OFFLINE)


if __name__ == "__main__":
    serve(**json.loads(Path(sys.argv[1]).read_text()))
