"""Sends the loads of a plan to a running server, and writes the passes that its streams show into a sealed file."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.profile.data_card import write_card
from windtunnel.profile.served import seen
from windtunnel.profile.served.client import Answered, Asked, ServerClient
from windtunnel.profile.served.facts import requests_of
from windtunnel.profile.served.loads import BESIDE, KINDS, SHORT, ServerLoad, loads_of
from windtunnel.profile.session import Session
from windtunnel.records import DTYPES, About, write_shape

FILE = "passes.parquet"
NAME = "engine_pass"
"""Name of a row that is a forward pass of an engine."""

REPEATS = 5
"""Times that prompts are sent."""

BEHIND = 0.002
"""s after a full pass's prompt in which those that shall wait for it are sent."""

ROOM = 0.9
"""Share of a vocabulary from which ids are drawn: its last ids may be none of the tokenizer's."""

Tell = Callable[[str], None]


class ServedPasses:
    """Loads on a server, one at a time. `plan`: what `measure.plan` has written of it."""

    def __init__(self, plan: Mapping[str, Any], client: ServerClient | None = None) -> None:
        self.plan, self.client = plan, client or ServerClient(str(plan["url"]))
        self.model, self.step = str(plan["model"]), int(plan["step_tokens"])
        self.draws = random.Random(f"{plan['model']} {time.time_ns()}")  # the cache may hold what an earlier run has sent
        self.shortest = 0.0

    def asked(self, length: int, tokens: int) -> Asked:
        """A prompt of random ids, which no cache has."""
        most = max(8, int(ROOM * int(self.plan["vocab"])))
        return Asked(tuple(self.draws.randrange(3, most) for _ in range(length)), tokens)

    def send(self, requests: Sequence[Asked], began: threading.Semaphore | None = None) -> list[Answered]:
        return self.client.send(self.model, requests, began)

    def warm(self) -> None:
        """What the first requests of a server wait for; and the seconds of a short prompt's token."""
        if (others := requests_of(self.client)) > 0:
            hint = "Passes of other people's requests cannot be told from ours: measure it when nobody else uses it."
            raise SpecError("--server", f"{others} requests that are not ours", "a server without other requests", hint)
        self.send([self.asked(SHORT, 8) for _ in range(2)])
        self.shortest = median(self.send([self.asked(16, 1)])[0].first_seconds for _ in range(3))

    def measure(self, load: ServerLoad) -> seen.SeenPass:
        """The passes of a load."""
        return {"prompts": self._prompts, "decodes": self._decodes, "mixed": self._mixed}[load.kind](load)

    def _decodes(self, load: ServerLoad) -> seen.SeenPass:
        return seen.decoding(self.send([self.asked(load.context, load.tokens) for _ in range(load.decodes)]))

    def _prompts(self, load: ServerLoad) -> seen.SeenPass:
        seconds, alone = [], []
        for _ in range(REPEATS):
            full: list[Answered] = []
            blocker, waiting = self.asked(self.step, 1), [self.asked(load.prompt, 1) for _ in range(load.chunks)]
            thread = _Sender(self, [blocker], full)
            time.sleep(BEHIND)
            prompts = self.send(waiting)
            thread.finish()
            took = seen.behind(full[0], prompts, self.shortest)
            if took is not None:
                seconds.append(took)
            alone.append(self.send([self.asked(load.prompt, 1)])[0].first_seconds)
        usual = median(seconds) if seconds and load.chunks == 1 else None
        return seen.SeenPass(tuple(seconds), 0.0, () if usual is None else tuple(max(0.0, one - usual) for one in alone))

    def _mixed(self, load: ServerLoad) -> seen.SeenPass:
        answers: list[Answered] = []
        began = threading.Semaphore(0)
        thread = _Sender(self, [self.asked(load.context, load.tokens) for _ in range(load.decodes)], answers, began)
        for _ in range(load.decodes):
            began.acquire()
        prompts = [self.send([self.asked(load.prompt, 1)])[0] for _ in range(BESIDE)]
        thread.finish()
        return seen.beside(answers, prompts)

    def closed_loop(self, users: int, length: int, tokens: int, each: int) -> list[Answered]:
        """Answers of `users`, each with `each` requests of `length` + `tokens` tokens, one after the other."""
        shared: list[list[Answered]] = [[] for _ in range(users)]
        errors: list[Exception] = []

        def ask(into: list[Answered]) -> None:
            try:
                for _ in range(each):
                    into += self.send([self.asked(length, tokens)])
            except Exception as error:  # of any kind: raised below
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(into,), daemon=True, name="windtunnel-user") for into in shared]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [answer for answers in shared for answer in answers]


class _Sender:
    """Requests that are sent from a thread of their own."""

    def __init__(
        self, passes: ServedPasses, requests: Sequence[Asked], into: list[Answered], began: threading.Semaphore | None = None
    ) -> None:
        self.error: Exception | None = None
        self.began, self.count = began, len(requests)
        self.thread = threading.Thread(target=self._run, args=(passes, requests, into), daemon=True, name="windtunnel-sender")
        self.thread.start()

    def _run(self, passes: ServedPasses, requests: Sequence[Asked], into: list[Answered]) -> None:
        try:
            into += passes.send(requests, self.began)
        except Exception as error:  # of any kind: `finish` raises it
            self.error = error
            if self.began is not None:
                self.began.release(self.count)

    def finish(self) -> None:
        """Waits for the answers; raises what sending raised."""
        self.thread.join()
        if self.error is not None:
            raise self.error


def row_of(load: ServerLoad, found: seen.SeenPass, plan: Mapping[str, Any]) -> dict[str, Any]:
    """A pass as a row of a dataset: level step, what it computed as its shape."""
    pairs = load.chunks * load.prompt * (load.prompt + 1) // 2
    shape: dict[str, int | str] = {
        "load": load.name, "prompt": load.chunks * load.prompt, "chunks": load.chunks, "pairs": pairs, "decodes": load.decodes,
        "cached": round(found.cached),
    }  # fmt: skip
    form = str(plan["weights"])
    return {
        "level": "step", "op": "step", "name": NAME, "phase": "forward", "mode": "eager",
        "dtype": form if form in DTYPES else "bf16",
        "library": plan["engine"] or None, "model": plan["model"], "shape": write_shape(shape), "batch": load.chunks + load.decodes,
        "seconds": median(found.seconds), "seconds_min": min(found.seconds), "seconds_max": max(found.seconds),
        "seconds_mean": fmean(found.seconds), "seconds_std": pstdev(found.seconds), "repeats": len(found.seconds),
        "host_seconds": median(found.front) if found.front else None, "status": "ok",
        "note": "as the server runs it: eager or captured", "source": "streams of a running server, by windtunnel measure run",
    }  # fmt: skip


def about_of(gpu: str, plan: Mapping[str, Any], trip: float) -> About:
    """The description of the passes of a server."""
    release = f"{plan['engine'] or 'server'} {plan['release']}".strip()
    said = {name: str(plan[name]) for name in ("model", "step_tokens", "running", "cache_tokens", "most_tokens") if plan[name]}
    return About(
        gpu, device="", driver=release, libraries={str(plan["engine"] or "server"): str(plan["release"])},
        settings={**said, "round_trip_us": f"{1e6 * trip:.0f}"}, licence="Apache-2.0",
        source="a running server, seen by its client: windtunnel measure run",
        notes="no clock, power, memory, FLOP and kernels: a client sees none; a pass has the host's time after it",
    )  # fmt: skip


def run_loads(
    gpu: str, plan: Mapping[str, Any], folder: Path, ends: float, only: Sequence[str] = (), tell: Tell = print,
    client: ServerClient | None = None,
) -> None:  # fmt: skip
    """Measures the loads of a plan that `folder` has not, until `ends` on the monotonic clock, and writes the data card.

    SpecError for kinds of loads that are none, for a server that others use, and as of `ServerClient`.
    """
    for word in only:
        if word not in KINDS:
            raise SpecError("--only", word, ", ".join(KINDS))
    passes = ServedPasses(plan, client)
    passes.client.ends = ends
    session = Session(folder / FILE, about_of(gpu, plan, passes.client.round_trip()), resume=True)
    known = {word for row in session.rows.values() for word in str(row["shape"]).split() if word.startswith("load=")}
    listed = loads_of(passes.step, int(plan["running"]), int(plan["most_tokens"]), int(plan["cache_tokens"]))
    left = [load for load in listed if f"load={load.name}" not in known and (not only or load.kind in only)]
    measured, unclear = 0, []
    try:
        if left:
            passes.warm()
        for load in left:
            if time.monotonic() >= ends:
                break
            found = passes.measure(load)
            if found.seconds:
                session.add(row_of(load, found, plan))
                measured += 1
            else:
                unclear.append(load.name)
    except TimeoutError:
        pass
    finally:
        session.save()
    tell(f"passes: {measured} measured, {len(listed) - len(left)} from before, {len(left) - measured - len(unclear)} left")
    if unclear:
        tell(f"  could not be told apart: {', '.join(unclear)}")
    write_card(folder, str(plan["model"]))
