"""Runs a script inside a forked process as `python SCRIPT …` would, including its exit handling."""

from __future__ import annotations

import atexit
import os
import random
import runpy
import sys
import threading
from collections.abc import Sequence

from windtunnel.fleet.fence import Fence


def run_script(argv: Sequence[str]) -> int:
    """Runs `argv` (a Python interpreter, a script or -m MODULE, arguments) in this process; returns its exit status."""
    _reseed_random()
    for path in reversed([path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]):
        if path not in sys.path:
            sys.path.insert(1, path)
    code = 0
    try:
        if os.environ.get("WINDTUNNEL_FLEET_DIR") and "torch" in sys.modules:
            from windtunnel.fleet import watch

            watch.auto_start()
        if argv[1] == "-m":
            sys.argv, sys.path[0] = list(argv[2:]), os.getcwd()
            runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = list(argv[1:]), os.path.dirname(os.path.abspath(argv[1]))
            runpy.run_path(argv[1], run_name="__main__")
    except SystemExit as ended:
        code = _exit_status(ended.code)
        if code:
            _note_unwatched_end(ended)
    except BaseException as error:  # noqa: BLE001 - the script's own error is printed as Python does, and ends this process
        _note_unwatched_end(error)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _note_unwatched_end(error: BaseException) -> None:
    """Notes the end of a rank that the monitor does not see, since it has no torch."""
    api = sys.modules.get("windtunnel.fleet.watch.api")
    if "RANK" in os.environ and os.environ.get("WINDTUNNEL_FLEET_DIR") and (api is None or not api.active()):
        from windtunnel.fleet.watch.ends import note_early_exception

        Fence("how this rank ended is not noted").hook(note_early_exception)(error, error.__traceback__)


def _reseed_random() -> None:
    """Reseeds Python's and numpy's generators: forked ranks would otherwise draw the same random numbers."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int.from_bytes(os.urandom(4), "little"))


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
