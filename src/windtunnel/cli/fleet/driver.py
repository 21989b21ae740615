"""`windtunnel fleet driver DIR`, and the driver of `windtunnel fleet run --nodes`."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.base.text import clean
from windtunnel.base.units import host_port
from windtunnel.cli.fleet.run_options import Counters, LogRules, WatchLog, Webhook, monitor_options
from windtunnel.fleet.launch.webhook import VARIABLE, AlarmWebhook

if TYPE_CHECKING:
    from windtunnel.fleet.driver.detect import DetectionLimits
    from windtunnel.fleet.driver.plan import JobPlan
    from windtunnel.fleet.driver.serve import MakeEngine
    from windtunnel.fleet.engines.engine import AgentCommand, Engine
    from windtunnel.records.incidents import Incident

ENGINES = ("local", "slurm", "ray", "waiting")
ERRORS = 2.0
"""Times the prediction's stated error that a step may be off before it is told."""


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The driver's folder: --driver-dir of `fleet run`, or RUN/driver.")],
    engine: Annotated[
        str, typer.Option("--engine", help="What starts agents: local, slurm, ray; waiting: something else.")
    ] = "local",
    webhook: Webhook = "",
    log_rules: LogRules = None,
    watch_log: WatchLog = None,
    counters: Counters = None,
) -> None:
    """The job goes on meanwhile, and under this driver from then on. Exits as the job does."""
    from windtunnel.fleet.driver.serve import Driver

    folder = folder.absolute()
    of_monitor = monitor_options(log_rules, watch_log or (), counters or ())
    records = Path(_of_plan(folder, "folder", str(folder.parent)))
    with (
        _incidents_to(webhook, lambda: _of_plan(folder, "run", folder.name)) as tell,
        _monitor_beside(records, of_monitor, webhook),
    ):
        code = Driver(folder, engine_of(engine), line_printer(), tell=tell).run()
    raise typer.Exit(code)


def _of_plan(folder: Path, name: str, otherwise: str) -> str:
    """A field of the plan in a driver's folder; the driver says what is wrong with one that cannot be read."""
    import json

    try:
        return str(json.loads((folder / "plan.json").read_bytes())[name])
    except (OSError, ValueError, KeyError, TypeError):
        return otherwise


@contextlib.contextmanager
def _monitor_beside(run: Path, of_monitor: Sequence[str], webhook: str, judge: bool = False) -> Iterator[None]:
    """Beside a driver, where one is asked for: a monitor that follows the lines of all ranks and the counters. Which ranks are slow
    or hang is the driver's to say, unless `judge`."""
    if not of_monitor and not judge:
        yield
        return
    from windtunnel.fleet.launch.sidecars import Sidecars

    run.mkdir(parents=True, exist_ok=True)
    with Sidecars(run, webhook=webhook, of_monitor=[*of_monitor, *([] if judge else ["--no-judge"])]):
        yield


@contextlib.contextmanager
def _incidents_to(webhook: str, run: Callable[[], str]) -> Iterator[Callable[[Incident, bool], object]]:
    """What takes the incidents of a kept job: the webhook, if there is one. Its URL is a secret that ranks do not get."""
    os.environ.pop(VARIABLE, None)
    if not webhook:
        yield lambda incident, over: None
        return
    hook = AlarmWebhook(webhook, run())
    try:
        yield hook.offer_incident
    finally:
        hook.close()


@dataclass(frozen=True)
class KeptAlive:
    """What `fleet run` was asked for with --nodes."""

    nodes: int
    per_node: int
    spares: int
    folder: Path | None
    retries: int
    shrink: bool
    engine: str
    tests: tuple[str, ...]
    tests_after: bool
    checkpoint: Path | None
    limits: Sequence[str]
    expected_step: str
    listen: str
    store: str
    tee: bool = False
    webhook: str = ""
    judge: bool = False
    """A monitor beside the driver judges the ranks too."""
    of_monitor: Sequence[str] = ()
    """Options of a monitor beside the driver."""
    rejoin: bool = False


def keep_alive(program: Sequence[str], run: Path, detail: str, asked: KeptAlive) -> int:
    """Runs `program` once a process of `asked`, and keeps it alive; its exit status."""
    from windtunnel.fleet.driver.serve import Driver

    plan = _plan(program, run.absolute(), detail, asked)
    folder = (asked.folder or run / "driver").absolute()
    say = line_printer()
    beside = _monitor_beside(run, asked.of_monitor, asked.webhook, asked.judge)
    with _incidents_to(asked.webhook, lambda: plan.run) as tell, beside:
        driver = Driver(folder, engine_of(asked.engine), say, database=asked.store, tell=tell)
        driver.save_plan(plan)
        say(f"records in {run}, driver in {folder}")
        code = driver.run()
    say(f"ended with {code}; what happened: windtunnel fleet incidents {run}")
    return code


def _plan(program: Sequence[str], run: Path, detail: str, asked: KeptAlive) -> JobPlan:
    from windtunnel.fleet.agent.keeper import is_python
    from windtunnel.fleet.driver.plan import JobPlan, RecoveryPolicy
    from windtunnel.fleet.launch.command import environment
    from windtunnel.fleet.wire.channel import ALLOWED, UNIX

    if not program:
        raise SpecError(
            "COMMAND", Nothing(), "a command after --", "Type: windtunnel fleet run --nodes 2 --nproc-per-node 4 -- python train.py"
        )
    if not asked.listen.startswith(UNIX):
        host_port(asked.listen, "--driver-listen", ALLOWED, "For example 0.0.0.0:8480.")
    if Path(program[0]).name == "torchrun":
        raise SpecError("COMMAND", program[0], "the command of one rank", "Type python and the script: agents start the ranks.")
    if shutil.which(program[0]) is None:
        raise SpecError("COMMAND", program[0], "a program on PATH")
    argv = (sys.executable if program[0] in ("python", "python3") else program[0], *program[1:])
    tests, limits = _tests(asked), _limits(asked.limits, asked.expected_step)
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(run), error.strerror, "a folder that can be made", "Say another with --dir and --run.") from error
    base: dict[str, str] = {}
    variables = environment(run.parent, run.name, detail, base=base)
    modules = ("torch", "torch.distributed", "torch._dynamo", "windtunnel.fleet.watch")
    preload = (*modules, *(["windtunnel.fleet.recovery"] if asked.rejoin else [])) if is_python(argv) else ()
    checkpoint = str(asked.checkpoint.absolute()) if asked.checkpoint else ""
    return JobPlan(
        argv, asked.nodes, asked.per_node, asked.spares, run.name, str(run), asked.listen, checkpoint, variables,
        preload=preload, limits=limits,
        policy=RecoveryPolicy(retries=asked.retries, shrink=asked.shrink, tests=tests, after=asked.tests_after),
        rejoin=asked.rejoin, tee=asked.tee,
    )  # fmt: skip


def _tests(asked: KeptAlive) -> tuple[tuple[str, ...], ...]:
    """Names of self-tests, each with its options. SpecError for one that no single node can do."""
    from windtunnel.fleet.diagnose.registry import TESTS

    alone = [name for name, test in TESTS.items() if test.single_node]
    tests = tuple(tuple(shlex.split(one)) for one in asked.tests)
    for name, *_ in (one or ("",) for one in tests):
        if name not in alone:
            raise UnknownName("--test", name, alone)
    if asked.tests_after and not tests:
        raise SpecError("--test-after", Nothing(), "a --test that is run then", f"Name one of: {', '.join(alone)}.")
    return tests


def _limits(given: Sequence[str], expected: str) -> DetectionLimits:
    from windtunnel.fleet.driver.detect import DetectionLimits

    names, found = [one.name for one in fields(DetectionLimits) if one.name != "step"], dict[str, Any]()
    if expected:
        found["step"] = step_range(expected)
    for one in given:
        name, _, text = one.partition("=")
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if name not in names and text:
            raise UnknownName("--limit", name, names)
        if name not in names or not 0 <= seconds < 1e9:
            raise SpecError("--limit", one, f"NAME=SECONDS with a name of: {', '.join(names)}", "For example --limit silent=10.")
        found[name] = seconds
    return DetectionLimits(**found)


def step_range(text: str) -> tuple[float, float]:
    """(least, most) seconds of a step: LOW..HIGH, or a job, whose predicted step may be wrong by `ERRORS` times its stated error.
    SpecError for a range that is none, and as `load_job` and `predict` raise."""
    low, dots, high = text.partition("..")
    if dots:
        try:
            least, most = float(low), float(high)
        except ValueError:
            least, most = 1.0, 0.0
        if not 0.0 <= least < most < math.inf:
            raise SpecError("--expect-step", text, "LOW..HIGH in seconds, or a job", "For example --expect-step 0.9..1.2.")
        return least, most
    if low.replace(".", "", 1).isdigit():
        raise SpecError("--expect-step", text, "LOW..HIGH in seconds, or a job", f"For example --expect-step 0..{low}.")
    from windtunnel.predict import predict
    from windtunnel.spec import load_job

    answer = predict(load_job(text))
    wrong = min(0.99, ERRORS * answer.relative_error)
    return answer.step_time_s * (1.0 - wrong), answer.step_time_s * (1.0 + wrong)


def engine_of(name: str) -> MakeEngine:
    """Makes the engine of that name; SpecError for an unknown one."""

    def local(command: AgentCommand, folder: Path) -> Engine:
        from windtunnel.fleet.engines.local import LocalEngine

        return LocalEngine(command, folder / "agents")

    def slurm(command: AgentCommand, folder: Path) -> Engine:
        from windtunnel.fleet.engines.slurm import SlurmEngine

        return SlurmEngine(command, folder / "agents")

    def ray(command: AgentCommand, folder: Path) -> Engine:
        from windtunnel.fleet.engines.ray_engine import RayEngine

        return RayEngine(command, command.folder.name if command.folder else "job")

    def waiting(command: AgentCommand, folder: Path) -> Engine:
        from windtunnel.fleet.engines.engine import WaitingEngine

        return WaitingEngine()

    made: dict[str, MakeEngine] = {"local": local, "slurm": slurm, "ray": ray, "waiting": waiting}
    if name not in made:
        raise UnknownName("--engine", name, ENGINES)
    return made[name]


def line_printer() -> Callable[[str], None]:
    """A line for the person at the terminal."""
    import time

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} windtunnel fleet: {clean(text)}", file=sys.stderr, flush=True)

    return say
