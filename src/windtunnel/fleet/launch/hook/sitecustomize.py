"""Start-up hook of the processes of `windtunnel fleet run`: Python runs this file because its folder is first on PYTHONPATH.

It waits for the import of torch and then starts the monitor. An existing sitecustomize of the environment is run as well.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))
_FLEET = os.path.dirname(os.path.dirname(_HERE))


def _run_the_other() -> None:
    """Runs the sitecustomize that this one shadows."""
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
