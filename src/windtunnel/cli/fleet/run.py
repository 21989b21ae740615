"""`windtunnel fleet run`: a training command under the monitor, with all that belongs beside it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windtunnel.base.errors import SpecError, WindtunnelError, explain_missing_module
from windtunnel.base.units import host_port
from windtunnel.cli.fleet import run_options as kept
from windtunnel.cli.fleet.look import lost_save_notes

if TYPE_CHECKING:
    from windtunnel.fleet.launch.prepared_answer import PreparedAnswer
    from windtunnel.fleet.launch.sidecars import Sidecars

SUMMARY_STEPS = 200
"""Steps that the last lines read from a collector; its monitor has kept what is known of earlier ones."""
SUMMARY_ROWS = 400_000
"""Records of all ranks together that they read from rings."""


def command(
    context: typer.Context,
    program: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The command that trains, after --.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder in which the run's folder of records is made.")] = Path("out/fleet"),
    run: Annotated[
        str, typer.Option("--run", help="The run's name, the same on every node; default: the time, or the Slurm job.")
    ] = "",
    collect: Annotated[bool, typer.Option("--collect", help="Start a collector beside the command; it ends with it.")] = False,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="With --collect: the address for other nodes. Needs --secrets.")
    ] = "127.0.0.1:0",
    collector: Annotated[str, typer.Option("--collector", metavar="URL", help="Ship this node's records to a collector.")] = "",
    secrets: Annotated[
        Path | None,
        typer.Option("--secrets", metavar="DIR", help="TLS to the collector: the folder of its secrets; --collect makes them."),
    ] = None,
    monitor: Annotated[
        bool | None,
        typer.Option(
            "--monitor/--no-monitor",
            help="Print alarms while the job runs. Default: all; with --collector those of this machine's lines, disk and devices.",
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="full; steps:N records calls in every N-th step only; summary records no calls.")
    ] = "full",
    webhook: kept.Webhook = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", min=1, help="Start the job on N nodes by a driver that keeps it alive.")
    ] = None,
    per_node: kept.PerNode = 1,
    spares: kept.Spares = 0,
    driver_dir: kept.DriverDir = None,
    retries: kept.Retries = 10,
    shrink: kept.Shrink = False,
    rejoin: kept.Rejoin = False,
    engine: kept.EngineName = "local",
    driver_listen: kept.DriverListen = "127.0.0.1:0",
    test: kept.Tests = None,
    test_after: kept.TestAfter = False,
    checkpoint: kept.CheckpointDir = None,
    limit: kept.Limits = None,
    expect_step: kept.ExpectStep = "",
    store: kept.Store = "",
    tee: kept.Tee = False,
    log_rules: kept.LogRules = None,
    watch_log: kept.WatchLog = None,
    counters: kept.Counters = None,
) -> None:  # long: each option of the command is a parameter
    """Exits as the command does."""
    from windtunnel.fleet.watch.settings import WatchSettings

    name = _run_name(run, nodes is not None)
    replace(WatchSettings(), detail=policy).call_interval()
    if log_rules is not None:
        from windtunnel.fleet.log_watch import read_log_rules

        read_log_rules(log_rules)
    of_monitor = kept.monitor_options(log_rules, watch_log or (), counters or ())
    if nodes is not None:
        from windtunnel.cli.fleet.driver import KeptAlive, keep_alive

        asked = KeptAlive(
            nodes, per_node, spares, driver_dir, retries, shrink, engine, tuple(test or ()), test_after, checkpoint, limit or [],
            expect_step, driver_listen, store, tee, webhook, monitor is True, of_monitor, rejoin,
        )  # fmt: skip
        raise typer.Exit(keep_alive(program, folder / name, policy, asked))
    _refuse_without_nodes(context)
    place = _place(listen if collect else "", collector, secrets)
    raise typer.Exit(_run_watched(program, folder / name, policy, place, collector, secrets, monitor, webhook, of_monitor))


def _run_name(run: str, is_kept: bool) -> str:
    """The run's name: as asked for, else the Slurm job of a kept run, so that a requeued one finds its folder, else the time."""
    in_slurm = os.environ.get("SLURM_JOB_ID", "") if is_kept else ""
    name = run or (f"slurm-{in_slurm}" if in_slurm else f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    if "/" in name or name in (".", ".."):
        raise SpecError("--run", name, "a name without /", "Say the folder with --dir.")
    return name


def _place(listen: str, collector: str, secrets: Path | None) -> tuple[str, int] | None:
    """Where to collect, if anywhere. SpecError for options that do not go together."""
    if collector and listen:
        raise SpecError(
            "--collector", collector, "--collect or --collector URL", "--collect on one node, --collector on the others."
        )
    if secrets is not None and not listen and not collector.startswith("https://"):
        raise SpecError("--secrets", str(secrets), "--secrets with --collect or --collector https://HOST:PORT")
    return _listening(listen, secrets is not None) if listen else None


def _refuse_without_nodes(context: typer.Context) -> None:
    """SpecError for an option of --nodes that would do nothing."""
    for option in context.command.params:
        of_nodes = (getattr(option, "help", "") or "").startswith(kept.OF_NODES)
        source = context.get_parameter_source(option.name or "")
        if of_nodes and source is not None and source.name == "COMMANDLINE":
            raise SpecError(option.opts[0], "no --nodes", "--nodes N beside it", "A driver keeps the job alive then.")


def _run_watched(
    program: list[str],
    run: Path,
    policy: str,
    place: tuple[str, int] | None,
    collector: str,
    secrets: Path | None,
    monitor: bool | None,
    webhook: str,
    of_monitor: Sequence[str] = (),
) -> int:
    """The command's exit status, once it has run with all that belongs beside it."""
    from windtunnel.fleet.fence import tell
    from windtunnel.fleet.launch.command import RunFolder, environment, run_command
    from windtunnel.fleet.launch.prepared_answer import PreparedAnswer
    from windtunnel.fleet.launch.sidecars import Sidecars
    from windtunnel.fleet.launch.webhook import webhook_address
    from windtunnel.fleet.ship.post import connection_to
    from windtunnel.fleet.wire.secrets import FILE, VARIABLE

    if monitor is None and collector:  # the monitor beside the collector sees the whole run
        of_monitor = [*of_monitor, "--no-judge"]
    agents = Sidecars(run, place, collector, monitor is not False, secrets, webhook, of_monitor)
    if secrets is not None:
        os.environ[VARIABLE] = str((secrets / FILE).absolute())  # for the shipper, the monitor and who reads the run
        until = time.monotonic() + agents.limits.start_seconds
        while place is None and not (secrets / FILE).exists() and time.monotonic() < until:
            time.sleep(0.2)  # all nodes start at once, and one of them makes the secrets
    if collector:
        connection_to(collector, 1.0)
    if webhook:
        webhook_address(webhook)
    try:
        claimed = RunFolder(run)
    except WindtunnelError as error:  # a folder that cannot be written is no reason not to train
        tell(f"the job is not watched: {' '.join(str(error).split())}")
        return run_command(program, os.environ)
    if claimed.moved is not None:
        tell(f"the records of an earlier run {run.name} are in {claimed.moved} now")
    summary = PreparedAnswer(_modules_of_summary(agents.takes_other_nodes), lambda told: _summary_lines(run, **told))
    code = 0
    agents.on_complete = lambda: summary.ask({"url": agents.url if collector else "", "code": code})
    try:
        with agents:
            at = f", collected at {agents.url}" if agents.url else ""
            tell(f"records in {run}{at}")
            if agents.token and sys.stderr.isatty():
                tell(f"in a browser: {agents.url}/?token={agents.token}")
            printed = {"WINDTUNNEL_FLEET_PRINTED": "all"} if "--log-rules" in of_monitor else {}
            code = run_command(program, environment(run.parent, run.name, policy, agents.url) | printed, agents.tell_what_ended)
        claimed.end()
        _tell_summary(summary, agents, agents.url if collector else str(run))
    finally:
        summary.close()
    return code


def _listening(text: str, secret: bool) -> tuple[str, int]:
    """Host and port of --listen. SpecError for another form, and where others could reach a collector that has neither a token nor
    secrets."""
    missing = [one for one in ("starlette", "uvicorn", "httptools", "sqlalchemy", "prometheus_client") if find_spec(one) is None]
    if missing:
        raise SpecError("--collect", f"no {', '.join(missing)}", "what a collector needs", "Type: pip install 'windtunnel[fleet]'")
    host, port = host_port(text, "--listen", hint="For example --listen 0.0.0.0:8470.")
    if host not in ("127.0.0.1", "localhost", "::1") and not secret and not os.environ.get("WINDTUNNEL_FLEET_TOKEN"):
        raise SpecError(
            "--listen", text, "an address of this machine alone, or secrets",
            "Give --secrets DIR, or, without TLS, set WINDTUNNEL_FLEET_TOKEN on every node.",
        )  # fmt: skip
    return host, port


def _tell_summary(summary: PreparedAnswer, agents: Sidecars, where: str) -> None:
    """A few lines on what the run was, on standard error; whatever goes wrong here is no failure of the command, and what takes
    long does not hold its exit status up."""
    from windtunnel.cli.shared.common import notes

    limit = agents.limits.summary_seconds
    later = f"Ask later: windtunnel fleet show {where}"
    try:
        lines = summary.take(limit)
    except TimeoutError:
        lines = [f"windtunnel fleet: no summary: reading the records took more than {limit:g} s. {later}"]
    except EOFError:
        lines = [f"windtunnel fleet: no summary: the process that reads the records has ended. {later}"]
    console = notes()
    with suppress(OSError):  # standard error may be a file on a full disk
        for line in [*(f"windtunnel fleet: {one}" for one in agents.given_up), *lines]:
            console.print(line, markup=False, soft_wrap=True)


def _modules_of_summary(collected: bool) -> list[Callable[[], object]]:
    """Imports of what `_summary_lines` needs, which take longer than what it does. `collected`: records of other nodes too."""
    names = ["numpy", "scipy.special", "windtunnel.fleet.findings.judge", "windtunnel.fleet.sources", "windtunnel.runs.fleet.show"]
    names += ["sqlalchemy", "windtunnel.fleet.collect.store", "windtunnel.fleet.findings.clocks"] if collected else []
    return [partial(import_module, name) for name in names]


def _summary_lines(folder: Path, url: str, code: int) -> list[str]:
    """What the records say of a run that has ended with exit status `code`."""
    from windtunnel.fleet.findings.judge import judge
    from windtunnel.fleet.launch.command import LAUNCHES
    from windtunnel.fleet.monitor import stall_report
    from windtunnel.fleet.sources import alarms_of, history_of, keep_last_alarm, keep_last_losses, read_ended_run

    try:
        recorded = read_ended_run(folder, SUMMARY_STEPS, SUMMARY_ROWS)
        from windtunnel.runs.fleet.show import fleet_short  # here: the wheel windtunnel-fleet alone has no reports

        report = stall_report(recorded)
        keep_last_alarm(folder, report, recorded)
        keep_last_losses(folder)
        judged = judge(recorded.sections, recorded.meshes, history_of(folder))
        lines = fleet_short(recorded, judged, report, code, alarms_of(str(folder)))
    except WindtunnelError:
        ended = f"; it ended with exit status {code}" if code else ""
        if not (folder / LAUNCHES).is_dir():
            return [f"windtunnel fleet: no summary: {folder}, with the run's records, was deleted while the command ran{ended}"]
        return [f"windtunnel fleet: nothing was recorded: no rank of the command has imported torch{ended}"]
    except ModuleNotFoundError as error:
        lines = [f"windtunnel fleet: no summary: {explain_missing_module(error) or error}"]
    except Exception as error:
        lines = [f"windtunnel fleet: no summary: {type(error).__name__}: {error}"]
    where = url or folder
    lost = [f"  {one}" for one in lost_save_notes(folder)]
    return [*lines, *lost, f"  records: {where}; a page: windtunnel fleet show {where} --html run.html"]
