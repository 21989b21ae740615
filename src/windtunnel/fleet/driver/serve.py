"""Runs a driver from its lease to its end: listens, starts agents, runs the job. A driver that is started on the folder of a killed
one continues its job.

Ownership of a job by lease: which driver holds it in the database, and its renewal.

Persistent state of a driver in SQLite or PostgreSQL: who owns the job, and its state.

If the database server is unavailable, the store waits for it: no order is given that a later driver would not know of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.incident_log import IncidentLog
from windtunnel.fleet.driver.job import DriverJob
from windtunnel.fleet.driver.node_logs import LogTee, ended_agents
from windtunnel.fleet.driver.plan import JobPlan, JobState, keep_environment, requeued_state, restore_environment
from windtunnel.fleet.driver.roster import AgentNode, Roster
from windtunnel.fleet.engines.engine import AgentCommand, Engine
from windtunnel.fleet.engines.slurm import is_requeued, requeue, requeueable_job
from windtunnel.fleet.rings import stats_of
from windtunnel.fleet.wire.channel import UNIX, listen
from windtunnel.fleet.wire.secrets import FILE, make_secrets, write_private
from windtunnel.records.incidents import Incident

META = sa.MetaData()
LEASE = sa.Table(
    "wt_lease", META, sa.Column("job", sa.String(200), primary_key=True), sa.Column("owner", sa.String(80)),
    sa.Column("fence", sa.BigInteger), sa.Column("expires", sa.Float),
)  # fmt: skip
FACTS = sa.Table(
    "wt_driver", META, sa.Column("job", sa.String(200), primary_key=True), sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text),
)  # fmt: skip
PATIENCE = 300.0
"""Seconds that a database server may be unavailable."""
_GONE = (sa.exc.OperationalError, sa.exc.InterfaceError)
_T = TypeVar("_T")


class FencedError(WindtunnelError):
    """Another driver has taken over the job: this one must stop."""


class DriverStore:
    """The database at a SQLAlchemy URL, which several jobs may share. FileError if it cannot be opened or stays unavailable for
    `patience` seconds.
    """

    def __init__(self, url: str, job: str = "job", patience: float = PATIENCE) -> None:
        self.url, self.job, self.patience = url, job, patience
        self.on_reconnect: Callable[[], object] = lambda: None  # called after an outage, during which this thread was blocked
        try:
            self.engine = sa.create_engine(url, pool_pre_ping=True)
            if self.engine.dialect.name == "sqlite":
                self.patience = 0.0  # a file: waiting would not help
                sa.event.listen(self.engine, "connect", _configure_sqlite)
                sa.event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            META.create_all(self.engine)
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            raise self._to_file_error(error, "a database that SQLAlchemy can open, such as sqlite:///driver.db") from error

    def acquire(self, owner: str, seconds: float, now: float) -> int | None:
        """Takes the lease until `now + seconds` (unix) and returns the next fencing number; None while another owner's lease has
        not expired.
        """

        def take(connection: sa.Connection) -> int | None:
            row = connection.execute(sa.select(LEASE).where(LEASE.c.job == self.job).with_for_update()).first()
            if row is not None and row.expires > now and row.owner != owner:
                return None
            fence = 1 if row is None else int(row.fence) + 1
            values = {"owner": owner, "fence": fence, "expires": now + seconds}
            if row is None:
                connection.execute(sa.insert(LEASE).values(job=self.job, **values))
            else:
                connection.execute(sa.update(LEASE).where(LEASE.c.job == self.job).values(**values))
            return fence

        return self._transact(take)

    def renew(self, fence: int, seconds: float, now: float) -> bool:
        """Extends the lease; False if another driver holds it."""
        mine = (LEASE.c.job == self.job) & (LEASE.c.fence == fence)
        prolong = sa.update(LEASE).where(mine).values(expires=now + seconds)
        return self._transact(lambda connection: connection.execute(prolong).rowcount == 1)

    def release(self, fence: int) -> None:
        """Releases the lease; no effect if another driver holds it."""
        self.renew(fence, -1.0, 0.0)

    def put(self, fence: int, name: str, value: Any) -> None:
        """Stores plain data. Raises FencedError, and writes nothing, if the fencing number is not the newest."""
        text = msgspec.json.encode(value).decode()

        def keep(connection: sa.Connection) -> None:
            newest = connection.scalar(sa.select(LEASE.c.fence).where(LEASE.c.job == self.job).with_for_update())
            if newest != fence:
                raise FencedError(f"driver {fence} has lost the job to driver {newest}")
            connection.execute(sa.delete(FACTS).where((FACTS.c.job == self.job) & (FACTS.c.name == name)))
            connection.execute(sa.insert(FACTS).values(job=self.job, name=name, value=text))

        self._transact(keep)

    def get(self, name: str, kind: Any = Any) -> Any:
        """The value that was stored last under `name`; None if there is none."""
        fact = sa.select(FACTS.c.value).where((FACTS.c.job == self.job) & (FACTS.c.name == name))
        text: str | None = self._transact(lambda connection: connection.scalar(fact))
        return None if text is None else msgspec.json.decode(text, type=kind)

    def close(self) -> None:
        self.engine.dispose()

    def _transact(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Runs `work` in a transaction and retries until the server accepts it. It may run twice: the server's answer can be
        lost.
        """
        until, gone = time.monotonic() + self.patience, False
        while True:
            try:
                with self.engine.begin() as connection:
                    answer = work(connection)
                break
            except _GONE as error:
                if time.monotonic() >= until:
                    raise self._to_file_error(error, "a database that answers") from error
                gone = True
                time.sleep(0.2)
        if gone:
            self.on_reconnect()
        return answer

    def _to_file_error(self, error: Exception, allowed: str) -> FileError:
        try:
            url = sa.make_url(self.url).render_as_string(hide_password=True)
        except sa.exc.ArgumentError:
            url = self.url
        return FileError(url, str(error).splitlines()[0][:200], allowed)


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = (
        None  # transactions begin with BEGIN IMMEDIATE above, so that readers and writers do not interleave
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=10000")


DATABASE = "driver.db"
STORE = "store"
"""File with the URL of another database; private, because the URL may contain a password."""
MakeEngine = Callable[[AgentCommand, Path], Engine]


@dataclass
class _AsyncEngine:
    """The engine's blocking calls, run in threads."""

    engine: Engine

    async def restart(self, node: str) -> None:
        await asyncio.to_thread(self.engine.start, (node,))

    async def end(self, node: str) -> None:
        await asyncio.to_thread(self.engine.stop, node)


@dataclass
class Driver:
    """A driver and its folder."""

    folder: Path
    """Folder of its state and secrets."""
    engine: MakeEngine
    say: Callable[[str], None]
    """Prints a line for the user."""
    database: str = ""
    """SQLAlchemy URL for a new job; empty: a file in `folder`."""
    tee: Callable[[str], object] = print
    """Prints a line of a rank's output, if the plan asks for them."""
    tell: Callable[[Incident, bool], object] = lambda incident, over: None
    """As `IncidentLog.tell`. It must not wait."""

    def save_plan(self, plan: JobPlan) -> None:
        """Stores a new plan. FileError if the folder has a job already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.database:
            with os.fdopen(os.open(self.folder / STORE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(self.database)
        store = self._store(plan.run)
        try:
            state = store.get("state", JobState)
            if state is not None and _goes_on(state):
                pass
            elif state is not None and state.phase != "ENDED":
                raise FileError(
                    str(self.folder), "a job that has not ended", "a new folder", f"Type: windtunnel fleet driver {self.folder}"
                )
            elif state is not None:
                raise FileError(str(self.folder), "a job that has ended", "a new folder for a new job")
            write_private(self.folder / "plan.json", msgspec.json.encode(plan))
            keep_environment(self.folder)
        except OSError as error:
            raise FileError(str(self.folder), error.strerror or str(error), "a folder that can be written") from error
        finally:
            store.close()

    def run(self) -> int:
        """Runs the job; its exit status, 130 after SIGINT, 143 after SIGTERM, or 75 (EX_TEMPFAIL) if Slurm starts the job again.
        FencedError if another driver takes over."""
        try:
            code = asyncio.run(self._serve())
        except OSError as error:
            raise FileError(str(self.folder), error.strerror or str(error), "a folder that the driver can write") from error
        if code == os.EX_TEMPFAIL and (job := requeueable_job()) and not requeue(job):
            self.say(f"Slurm does not requeue job {job}: submit it again with the same --run to go on")
        return code

    def _store(self, job: str) -> DriverStore:
        url_file = self.folder / STORE
        return DriverStore(
            url_file.read_text(encoding="utf-8") if url_file.exists() else f"sqlite:///{self.folder / DATABASE}", job
        )

    async def _serve(self) -> int:
        plan = msgspec.json.decode(_read_plan(self.folder), type=JobPlan)
        logging.raiseExceptions = False  # a log on a full disk loses lines
        with contextlib.suppress(OSError):
            logging.basicConfig(filename=self.folder / "driver.log", level=logging.INFO, format="%(asctime)s %(message)s")
        last = _last_alive(self.folder)
        store = self._store(plan.run)
        lease = Lease(store)
        await lease.acquire()
        state = store.get("state", JobState)
        resumed = state is not None
        if state is not None and _goes_on(state):
            state, resumed = requeued_state(state), False
            if not state.open:
                fault = DetectedFault("planned", (), (), "Slurm has started the job again", last, time.time(), separable=False)
                IncidentLog(Path(plan.folder), plan.run, state, self.tell).open(fault)
        if state is None:
            state = JobState()
        elif state.phase != "ENDED":
            for line in restore_environment(self.folder):
                self.say(line)
        if state.phase == "ENDED":  # its driver may have been killed before it released the agents
            engine = self.engine(
                AgentCommand(_reachable_address(state.address), self.folder / FILE, Path(plan.folder)), self.folder
            )
            await asyncio.to_thread(engine.close)
            lease.release()
            return int(state.code)
        try:
            return await self._run_with_lease(plan, state, store, lease, resumed)
        finally:
            lease.release()
            store.close()

    async def _run_with_lease(self, plan: JobPlan, state: JobState, store: DriverStore, lease: Lease, resumed: bool) -> int:
        secrets = make_secrets(self.folder, (plan.folder, *([plan.checkpoint] if plan.checkpoint else [])))
        roster = Roster(secrets, plan.limits, lease.fence, state.attempt)
        store.on_reconnect = roster.reset_silence
        roster.nodes = {name: AgentNode(name) for name in [*state.nodes, *state.spares, *state.blocked]}
        server, address = await listen(state.address or plan.listen, secrets, self.folder, roster.channel)
        state.address = address
        command = AgentCommand(_reachable_address(address), self.folder / FILE, Path(plan.folder))
        engine = self.engine(command, self.folder)
        if not state.nodes:
            names = await asyncio.to_thread(engine.acquire, plan.nodes + plan.spares)
            state.nodes, state.spares = list(names[: plan.nodes]), list(names[plan.nodes :])
        for name in [*state.nodes, *state.spares]:
            roster.nodes.setdefault(name, AgentNode(name))
        store.put(lease.fence, "state", state)
        save = _or_told(lambda: store.put(lease.fence, "state", state), self.say)
        job = DriverJob(
            plan, state, roster, _AsyncEngine(engine), IncidentLog(Path(plan.folder), plan.run, state, self.tell),
            save, self.say, await asyncio.to_thread(requeueable_job), partial(ended_agents, engine, self.folder / "agents"),
        )  # fmt: skip
        await asyncio.to_thread(_start_missing, engine, tuple(roster.nodes), state)
        fenced = False
        try:
            return await self._run_teed(job, lease, resumed)
        except FencedError:
            fenced = True
            raise
        except _StopRequested as stop:
            self.say(f"ended by {signal.Signals(stop.number).name}")
            state.phase, state.code = "ENDED", 128 + stop.number
            job.incident_log.close("stopped")
            save()
            await job.leave()
            return state.code
        finally:
            server.close()
            if not fenced:
                await asyncio.to_thread(engine.close)

    async def _run_teed(self, job: DriverJob, lease: Lease, resumed: bool) -> int:
        """Runs the job, and prints its ranks' output meanwhile if its plan asks for that."""
        running = _first_of(job.run(resumed), lease.keep_renewing())
        if not job.plan.tee:
            return await running
        tee = LogTee(Path(job.plan.folder), self.tee)
        if resumed:
            tee.skip(job.state.attempt)
        following = asyncio.create_task(_follow(tee, job.state))
        try:
            return await running
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            tee.look(job.state.attempt, ended=True)


async def _follow(tee: LogTee, state: JobState) -> None:
    """Prints new output four times a second, that of a last attempt to its end."""
    shown = state.attempt
    while True:
        await asyncio.sleep(0.25)
        if state.attempt != shown:
            tee.look(shown, ended=True)
            shown = state.attempt
        tee.look(shown)


def _goes_on(state: JobState) -> bool:
    """Whether this process was started by Slurm to go on with a job that did not end well."""
    return is_requeued() and not (state.phase == "ENDED" and state.code == 0)


def _last_alive(folder: Path) -> float:
    """Unix seconds at which the last driver renewed its lease, as the database's files tell; now, if there are none."""
    times = [stat.st_mtime for _, stat in stats_of(folder.glob(f"{DATABASE}*"))]  # SQLite's own come and go
    return max(times, default=time.time())


def _start_missing(engine: Engine, nodes: Sequence[str], state: JobState) -> None:
    """Starts agents that the engine does not have: all of them for a new job, otherwise those that died with the previous
    driver.
    """
    if missing := [node for node in nodes if node not in state.blocked and not engine.is_running(node)]:
        engine.start(missing)


def _or_told(write: Callable[[], object], say: Callable[[str], None]) -> Callable[[], None]:
    """`write`, whose FileError (a full disk) is told, once in a row: the ranks go on without what a later driver would read."""
    lost = False

    def write_or_tell() -> None:
        nonlocal lost
        try:
            write()
            lost = False
        except FileError as error:
            if not lost:
                say(f"the job goes on, but its driver's state is not kept: {' '.join(str(error).split())}")
            lost = True

    return write_or_tell


class _StopRequested(Exception):
    """A signal asked the driver to end the job."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


async def _first_of(job: Coroutine[Any, Any, int], lease: Coroutine[Any, Any, None]) -> int:
    """The job's status, unless a signal arrives or the lease is lost first."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def tell(number: int) -> None:
        if not stop.done():
            stop.set_exception(_StopRequested(number))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, tell, number)
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(job), asyncio.ensure_future(lease), stop]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return int(next(iter(done)).result())


def _read_plan(folder: Path) -> bytes:
    try:
        return (folder / "plan.json").read_bytes()
    except OSError as error:
        raise FileError(
            str(folder), "no plan.json in it", "the folder of a driver", "It is what `fleet run --driver-dir` named."
        ) from error


def _reachable_address(address: str) -> str:
    """The address that agents get: this machine's name if the driver listens on all interfaces."""
    if address.startswith(UNIX) or not address.startswith("0.0.0.0:"):
        return address
    return f"{socket.gethostname()}:{address.rpartition(':')[2]}"


SECONDS = 3.0
"""Length of a lease; a killed driver can be replaced after this time."""


@dataclass
class Lease:
    """The lease of this process."""

    store: DriverStore
    seconds: float = SECONDS
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{time.time_ns()}")
    fence: int = -1
    """Fencing number that its commands carry."""

    async def acquire(self) -> int:
        """Waits until the lease is free; returns the fencing number."""
        while (fence := self.store.acquire(self.owner, self.seconds, time.time())) is None:
            await asyncio.sleep(self.seconds / 10)
        self.fence = fence
        return fence

    async def keep_renewing(self) -> None:
        """Renews the lease until it is cancelled. FencedError if another driver holds it."""
        while True:
            await asyncio.sleep(self.seconds / 4)
            try:
                renewed = self.store.renew(self.fence, self.seconds, time.time())
            except FileError:
                if self.store.patience > 0:  # a server that has been gone for so long; another driver may have reached it
                    raise
                continue  # a file on a full disk: no other driver can take the job there
            if not renewed:
                raise FencedError(f"driver {self.fence} has lost its lease")

    def release(self) -> None:
        """Releases the lease, so that the next driver need not wait."""
        with contextlib.suppress(FileError):
            self.store.release(self.fence)
