"""The keeper of a node: parent process of its ranks. It survives agents, records how each rank ended, and forks ranks of a Python
script from itself after it has imported their modules.

It serves one agent at a time over a Unix socket that only its owner can open, with lines of JSON: `start`, `kill`, `warm`, `state`,
`leave`. Every change of a rank is sent back as a `state` line. Ranks die with the keeper (PR_SET_PDEATHSIG), so that no rank runs
unsupervised.

The command line under which `ps`, `top`, `pgrep` and py-spy show this process. A rank that a keeper forks shows its script's. Runs
a script inside a forked process as `python SCRIPT …` would, including its exit handling.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.fence import Fence, lose_output_on_full_disk, open_log

ROOM = 2000
"""Bytes that a keeper's last argument keeps free for the command line of its ranks."""
_PR_SET_MM, _PR_SET_MM_ARG_END = 35, 9


def room_argument() -> str:
    """A last argument that says nothing; its bytes are overwritten by `set_title`."""
    return " " * ROOM


def set_title(argv: Sequence[str], final: bool = True) -> bool:
    """Writes `argv` over this process's own command line, cut to the room that there is; whether the system allows it. `final`:
    the rest of the room is given up where the system lets this user do so, else it is filled with zeros."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if end - start < 2:
            return False
        text = b"\0".join(word.encode(errors="surrogateescape") for word in argv)[: end - start - 1] + b"\0"
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
        if final:
            ctypes.CDLL(None).prctl(_PR_SET_MM, _PR_SET_MM_ARG_END, ctypes.c_ulong(start + len(text)), 0, 0)
        return True
    return False


IDLE_SECONDS = 60.0
"""A keeper without ranks and without an agent exits after this time."""
_PR_SET_PDEATHSIG = 1


@dataclass
class RankProcess:
    """A rank's process."""

    rank: int
    pid: int
    attempt: int
    began: float
    log: str
    code: int | None = None
    """Exit code; None while it runs."""
    ended: float = 0.0


@dataclass
class Keeper:
    """Serves agents until it receives `leave`."""

    path: str
    """Path of its Unix socket."""
    ranks: dict[int, RankProcess] = field(default_factory=dict)
    attempt: int = -1
    warm: bool = False
    store: int = 0
    """Process id of the store in which the ranks of the attempt meet; 0 where they have none of ours."""
    _agent: socket.socket | None = None
    _read: bytes = b""
    _idle_since: float = field(default_factory=time.monotonic)
    _kills: list[tuple[float, int]] = field(default_factory=list)
    """(monotonic deadline, attempt) of pending SIGKILLs."""

    def serve(self) -> None:
        """Serves forever. Exits at once if another keeper owns the socket."""
        lock = os.open(self.path + ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(0)
        listener = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        before = os.umask(0o177)
        listener.bind(self.path)
        os.umask(before)
        listener.listen(4)
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal; the driver decides how the job ends
        signal.signal(signal.SIGTERM, lambda number, frame: self._leave())
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            selector.register(listener, selectors.EVENT_READ, self._accept)
            selector.register(woken, selectors.EVENT_READ, _drain_wakeups)
            while True:
                for key, _ in selector.select(self._select_timeout()):
                    key.data(key.fileobj)
                self._reap_children()
                self._send_due_kills()
                if self._agent is None and not self._running_ranks() and time.monotonic() - self._idle_since > IDLE_SECONDS:
                    self._leave()

    def _select_timeout(self) -> float:
        due = min((when for when, _ in self._kills), default=float("inf")) - time.monotonic()
        return max(0.0, min(5.0, due))

    def _accept(self, listener: socket.socket) -> None:
        agent, _ = listener.accept()
        if self._agent is not None:
            self._disconnect_agent()
        self._agent, self._read = agent, b""
        self._selector.register(agent, selectors.EVENT_READ, self._read_commands)
        self._send_state()

    def _read_commands(self, agent: socket.socket) -> None:
        try:
            raw = agent.recv(1 << 20)
        except OSError:
            raw = b""
        if not raw:
            self._disconnect_agent()
            return
        *lines, self._read = (self._read + raw).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            self._execute(asked.pop("do"), asked)
            self._send_state()

    def _execute(self, do: str, what: dict[str, Any]) -> None:
        if do == "start":
            self._start(**what)
        elif do == "kill":
            self._kill(**what)
        elif do == "warm":
            self._import_modules(**what)
        elif do == "leave":
            self._leave()

    def _disconnect_agent(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent)
            self._agent.close()
            self._agent, self._idle_since = None, time.monotonic()

    def _send_state(self) -> None:
        if self._agent is None:
            return
        state = {"attempt": self.attempt, "warm": self.warm, "ranks": [vars(one) for one in self.ranks.values()]}
        try:
            self._agent.sendall(json.dumps(state).encode() + b"\n")
        except OSError:
            self._disconnect_agent()

    def _running_ranks(self) -> list[RankProcess]:
        return [one for one in self.ranks.values() if one.code is None]

    def _start(
        self, attempt: int, argv: list[str], logs: str, ranks: Mapping[str, dict[str, str]], cwd: str, store: int, anew: bool
    ) -> None:
        """Starts the ranks of an attempt once. An attempt that was started before, or a start while ranks run, has no effect; but
        ranks of the attempt that have ended are started `anew`. `store`: port of the ranks' store, where this node has it."""
        if anew and (attempt != self.attempt or any(self.ranks[int(name)].code is None for name in ranks)):
            return
        if not anew and (attempt <= self.attempt or self._running_ranks()):
            return
        if not anew:
            self.attempt, self.ranks = attempt, {}
            self._end_store()
            command = [sys.executable, "-m", "windtunnel.fleet.agent.store_host", str(store)]
            plain = {
                name: value for name, value in next(iter(ranks.values())).items() if not name.startswith(("RANK", "WINDTUNNEL_"))
            }
            self.store = self._start_process(command, plain, _log_that_opens(os.path.join(logs, "store.log")), cwd) if store else 0
        for name, variables in ranks.items():
            earlier = sum(file.startswith(f"rank-{int(name):06d}.") for file in os.listdir(logs)) if anew else 0
            log = _log_that_opens(
                os.path.join(logs, f"rank-{int(name):06d}.{earlier}.log" if anew else f"rank-{int(name):06d}.log")
            )
            began = time.time()
            self.ranks[int(name)] = RankProcess(int(name), self._start_process(argv, variables, log, cwd), attempt, began, log)

    def _start_process(self, argv: Sequence[str], variables: Mapping[str, str], log: str, cwd: str) -> int:
        start = _fork_rank if self.warm and is_python(argv) else _spawn_rank
        return start(argv, variables, log, cwd)

    def _end_store(self) -> None:
        if self.store:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.store, signal.SIGKILL)
                os.waitpid(self.store, 0)
            self.store = 0

    def _kill(self, attempt: int, grace: float) -> None:
        self.attempt = max(self.attempt, attempt)  # a killed attempt must not be started later
        if grace > 0:
            self._signal(signal.SIGTERM, attempt)
        self._kills.append((time.monotonic() + grace, attempt))
        self._send_due_kills()
        self._reap_children()

    def _send_due_kills(self) -> None:
        now = time.monotonic()
        for when, attempt in [one for one in self._kills if one[0] <= now]:
            self._kills.remove((when, attempt))
            self._signal(signal.SIGKILL, attempt)
            if attempt >= self.attempt:
                self._end_store()

    def _signal(self, number: int, attempt: int) -> None:
        for one in self._running_ranks():
            if one.attempt <= attempt:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)

    def _import_modules(self, modules: Sequence[str]) -> None:
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # otherwise a collection in a child would copy the pages of all modules
        self.warm = True

    def _reap_children(self) -> None:
        by_pid = {one.pid: one for one in self._running_ranks()}
        changed = False
        while by_pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            one = by_pid.pop(pid, None)
            if pid == self.store:
                self.store = 0
            if one is not None:
                one.code, one.ended, changed = os.waitstatus_to_exitcode(status), time.time(), True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # remaining children, such as loader workers
        if changed:
            self._send_state()

    def _leave(self) -> None:
        self._end_store()
        self._signal(signal.SIGKILL, self.attempt)
        for one in self._running_ranks():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, 0)
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os._exit(0)


def _log_that_opens(path: str) -> str:
    """The path of a rank's log; the null device's where the disk has no room for another file: the rank runs all the same."""
    with open_log(path):
        return path if os.path.exists(path) else os.devnull


def is_python(argv: Sequence[str]) -> bool:
    """Whether a command is this Python with a script or a module and no interpreter options."""
    name = os.path.basename(argv[0])
    same = argv[0] == sys.executable or name in ("python", "python3", os.path.basename(sys.executable))
    return same and len(argv) > 1 and (argv[1].endswith(".py") or (argv[1] == "-m" and len(argv) > 2))


def _spawn_rank(argv: Sequence[str], variables: Mapping[str, str], log: str, cwd: str) -> int:
    keeper = os.getpid()
    with open(log, "ab") as file:
        try:
            child = subprocess.Popen(
                list(argv), env=dict(variables), cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                preexec_fn=lambda: _enter_own_group(keeper),
            )  # fmt: skip
        except OSError as error:
            file.write(f"windtunnel fleet: {argv[0]} does not start: {error}\n".encode())
            child = subprocess.Popen(["false"], preexec_fn=lambda: _enter_own_group(keeper))
    child.returncode = 0  # the keeper reaps it itself; subprocess must not
    return child.pid


def _enter_own_group(keeper: int) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)


def _fork_rank(argv: Sequence[str], variables: Mapping[str, str], log: str, cwd: str) -> int:
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_forked_rank(lambda: _enter_own_group(keeper), argv, variables, log, cwd)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return pid


def _run_forked_rank(prepare: Callable[[], None], argv: Sequence[str], variables: Mapping[str, str], log: str, cwd: str) -> None:
    """Turns the forked child into the rank; never returns."""
    code = 1
    try:
        prepare()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        take_place(handle, variables, cwd)
        set_title(argv)
        lose_output_on_full_disk()
        code = run_script(argv)
    finally:
        os._exit(code)


def take_place(output: int, variables: Mapping[str, str], folder: str) -> None:
    """Gives this forked process the output, environment and folder of a program of its own; it reads nothing and has no other file
    open."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)


def _drain_wakeups(woken: Any) -> None:
    with contextlib.suppress(BlockingIOError):
        while woken.recv(4096):
            pass


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


if __name__ == "__main__":
    set_title([sys.executable, "-m", "windtunnel.fleet.agent.keeper", sys.argv[1]], final=False)
    Keeper(sys.argv[1]).serve()
