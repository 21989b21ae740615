"""Start-up hook of the processes of `windtunnel fleet run`: Python runs this file because its folder is first on PYTHONPATH.

It waits for the import of torch and then starts the monitor. It notes exceptions that come before, and, in a launcher, how the
ranks ended that it has started. An existing sitecustomize of the environment is run as well. All of it runs inside a `Fence`: a
fault of it ends the watching, never the process.
"""

import atexit
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Any

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


def _find_windtunnel() -> None:
    """Makes windtunnel importable in an environment that lacks it."""
    home = os.path.dirname(os.path.dirname(_FLEET))
    if importlib.util.find_spec("windtunnel") is None and home not in sys.path:
        sys.path.append(home)


def _start(torch: object) -> None:
    _find_windtunnel()
    from windtunnel.fleet import watch

    watch.auto_start()


def _note_start() -> bool:
    """A rank says that its process runs, long before it has a ring: who waits for it can tell a slow start from a missing rank.

    False in a process that the rank's own has started.
    """
    folder = os.path.join(os.environ["WINDTUNNEL_FLEET_DIR"], os.environ.get("WINDTUNNEL_FLEET_RUN") or "job")
    path = os.path.join(folder, f"rank-{int(os.environ['RANK']):06d}.start")
    host = os.environ.get("WINDTUNNEL_FLEET_HOST") or os.uname().nodename
    try:
        with suppress(FileNotFoundError, ValueError, IndexError), open(path, encoding="ascii") as file:
            before, since, *_ = file.read().split()
            if _start_of(before) == since:
                return False
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(f"{os.getpid()} {_start_of('self')} {os.environ.get('TORCHELASTIC_RESTART_COUNT') or 0} {host}\n")
    except (OSError, IndexError, UnicodeError):  # a folder that cannot be written, or another system
        pass
    return True


def _start_of(pid: str) -> str:
    """When a process started, in ticks since the machine did; empty where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return ""


def _note_early_ends(fence: Any) -> None:
    """An exception before the import of torch is noted, and an exit with an error; later ones are the monitor's."""
    started = os.getpid()

    def ends() -> Any:
        """The monitor's module of ends; None in another process, or where the monitor has begun."""
        api = sys.modules.get("windtunnel.fleet.watch.api")
        if os.getpid() != started or (api is not None and api.active()):
            return None
        _find_windtunnel()
        return importlib.import_module("windtunnel.fleet.watch.ends")

    def around_excepthook(original: Callable[..., Any]) -> Callable[..., Any]:
        def note(kind: type, error: BaseException, trace: Any) -> None:
            if (module := ends()) is not None:
                module.note_early_exception(error, trace)
            original(kind, error, trace)

        return note

    def around_exit(original: Callable[..., Any]) -> Callable[..., Any]:
        def leave(status: Any = None, /) -> Any:
            if status and threading.current_thread() is threading.main_thread() and (module := ends()) is not None:
                text = module.exit_text(status)
                atexit.register(fence.hook(lambda: None if ends() is None else module.note_early_exit(status, text)))
            original(status)

        return leave

    sys.excepthook = fence.wrap(sys.excepthook, around_excepthook, "sys.excepthook before torch")
    sys.exit = fence.wrap(sys.exit, around_exit, "sys.exit before torch")


def _note_children(fence: Any, owner: type, *names: str) -> None:
    """How a child ended is noted when its parent learns of it; nothing is imported before a child has failed."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def poll(child: Any, *args: Any, **options: Any) -> Any:
            known = child.returncode
            try:
                return original(child, *args, **options)
            finally:
                if known is None and child.returncode:
                    _find_windtunnel()
                    from windtunnel.fleet.watch.ends import note_exit

                    note_exit(child.pid, child.returncode)

        return poll

    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, fence.wrap(getattr(owner, name), make, f"{owner.__name__}.{name}"))


def _load(*path: str) -> Any:
    """A module of the monitor that imports nothing of windtunnel."""
    name = path[-1].removesuffix(".py")
    spec = importlib.util.spec_from_file_location(f"_windtunnel_{name}", os.path.join(_FLEET, *path))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _watch() -> None:
    fences = _load("fence.py")
    fence = fences.Fence("this process is not watched")
    if "WINDTUNNEL_FLEET_NODE" in os.environ:  # of a kept job: its output goes to a log of ours
        fences.lose_output_on_full_disk()
    imports = _load("watch", "import_hooks.py").AfterImport(fence.hook)
    imports.when("torch", _start)
    imports.when("subprocess", lambda found: _note_children(fence, found.Popen, "poll", "wait"))
    imports.when("multiprocessing.popen_fork", lambda found: _note_children(fence, found.Popen, "poll"))
    if "RANK" in os.environ and fence.hook(_note_start)():
        _note_early_ends(fence)


if "WINDTUNNEL_FLEET_DIR" in os.environ and "WINDTUNNEL_FLEET_PID" not in os.environ:
    try:
        _watch()
    except Exception as error:  # files of ours that cannot be read
        sys.stderr.write(f"windtunnel fleet: this process is not watched: {error}\n")
_run_the_other()
