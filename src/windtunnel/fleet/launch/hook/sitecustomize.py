"""Python runs this file at the start of every process of `windtunnel fleet run`, for its folder leads PYTHONPATH.

It waits for torch and then starts the monitor. A sitecustomize that the environment has of its own runs as ever.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))
_FLEET = os.path.dirname(os.path.dirname(_HERE))


def _run_the_other() -> None:
    """The sitecustomize that would have run without this one."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _start(torch: object) -> None:
    home = os.path.dirname(os.path.dirname(_FLEET))
    try:
        from windtunnel.fleet import watch
    except ImportError:
        sys.path.append(home)  # the script runs in an environment that lacks windtunnel
        try:
            from windtunnel.fleet import watch
        except ImportError as error:
            print(f"windtunnel fleet: this process is not watched: {error}", file=sys.stderr)
            return
    watch.auto_start()


def _wait_for_torch() -> None:
    spec = importlib.util.spec_from_file_location("_windtunnel_imports", os.path.join(_FLEET, "watch", "import_hooks.py"))
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.AfterImport().when("torch", _start)


if "WINDTUNNEL_FLEET_DIR" in os.environ and "WINDTUNNEL_FLEET_PID" not in os.environ:
    _wait_for_torch()
_run_the_other()
