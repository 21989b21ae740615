"""Sends the loads of a plan to a running server, and writes the passes that its streams show into a sealed file. What streams of
tokens say of passes: seconds of a pass, and what it computed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.profile.data_card import write_card
from windtunnel.profile.served.client import ServerClient, ServerRequest, StreamedAnswer
from windtunnel.profile.served.facts import requests_of
from windtunnel.profile.served.loads import BESIDE, ENGINE_PASS, KINDS, SHORT, ServerLoad, loads_of
from windtunnel.profile.session import Session
from windtunnel.records import DTYPES, About, read_shape, write_shape

WINDOW = 8
"""Passes over which a decoding request's time is divided: chunks may hold several tokens, or come two at a time."""

TOGETHER = 0.5
"""Share of a pass within which the first tokens of all prompts of it come."""


@dataclass(frozen=True)
class SeenPass:
    """`seconds`: each time that a pass was seen, host time after it included; `cached`: tokens that its requests read in all;
    `front`: seconds of first tokens that lie outside of the pass."""

    seconds: tuple[float, ...]
    cached: float = 0.0
    front: tuple[float, ...] = ()


def decoding_passes(answers: Sequence[StreamedAnswer]) -> SeenPass:
    """Passes in which all of `answers` decode: after the last one's first token, before the first one's last. No seconds where that
    lasts less than a window."""
    begin, end = max(one.first_moment for one in answers), min(one.last_moment for one in answers)
    seconds, cached = [], 0.0
    for one in answers:
        steady = [(moment, count) for moment, count in one.came if begin <= moment <= end]
        place = 0
        for later, (moment, count) in enumerate(steady):
            before, had = steady[place]
            if count - had >= WINDOW:
                seconds.append((moment - before) / (count - had))
                place = later
        if len(steady) > 1:  # the pass of a request's token number c reads its prompt and c - 1 tokens
            cached += len(one.asked.prompt) + (steady[0][1] + 1 + steady[-1][1]) / 2.0 - 1.0
    return SeenPass(tuple(one for one in seconds if one > 0.0), cached)


def prompts_beside(answers: Sequence[StreamedAnswer], prompts: Sequence[StreamedAnswer]) -> SeenPass:
    """The passes in which prompts were computed beside decoding requests: the one at whose end both had a token."""
    seconds, cached, front = [], [], []
    for prompt in prompts:
        spans, read = [], 0.0
        for one in answers:
            ends = [place for place in range(1, len(one.came)) if one.came[place][1] - one.came[place - 1][1] == 1]
            if not ends:
                continue
            place = min(ends, key=lambda place: abs(one.came[place][0] - prompt.first_moment))
            spans.append(one.came[place][0] - one.came[place - 1][0])
            read += len(one.asked.prompt) + one.came[place][1] - 1.0
        around = all(one.first_moment < prompt.sent and prompt.first_moment < one.last_moment for one in answers)
        if around and len(spans) == len(answers):
            took = median(spans)
            seconds.append(took)
            cached.append(read)
            front.append(max(0.0, prompt.first_moment - prompt.sent - took))
    return SeenPass(tuple(seconds), median(cached) if cached else 0.0, tuple(front))


def prompts_behind(blocker: StreamedAnswer, prompts: Sequence[StreamedAnswer], shortest: float) -> float | None:
    """Seconds of the pass of `prompts` that were waiting when the pass of `blocker` ended: from its token to theirs. None where one
    of them came too late for that, or they were computed in several passes. `shortest`: seconds of a short prompt's first token."""
    first, last = min(one.first_moment for one in prompts), max(one.first_moment for one in prompts)
    took = median([one.first_moment for one in prompts]) - blocker.first_moment
    late = blocker.first_moment - max(one.sent for one in prompts) < shortest
    return None if late or first <= blocker.first_moment or last - first > TOGETHER * took else took


FILE = "passes.parquet"

REPEATS = 5
"""Times that prompts are sent."""

ROUNDS = 4
"""Times that a run sends the loads of a plan at most; what others on the machine disturb least is kept."""

LEAVING = 3.0
"""s in which a server forgets the requests of a run that was ended."""

BEHIND = 0.002
"""s after a full pass's prompt in which those that shall wait for it are sent."""

SHARE = 2.0
"""How often its share of the time that is left a load may take."""

ROOM = 0.9
"""Share of a vocabulary from which ids are drawn: its last ids may be none of the tokenizer's."""

CARD = Path(__file__).with_name("data_card.md").read_text(encoding="utf-8")
"""The data card of a server's passes."""

Tell = Callable[[str], None]


class ServedPasses:
    """Loads on a server, one at a time. `plan`: what `measure.plan` has written of it."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan, self.client = plan, ServerClient(str(plan["url"]))
        self.model, self.step = str(plan["model"]), int(plan["step_tokens"])
        self.draws = random.Random(f"{plan['model']} {time.time_ns()}")  # the cache may hold what an earlier run has sent
        self.shortest, self.each = 0.0, 0.0

    def random_prompt(self, length: int, tokens: int) -> ServerRequest:
        """A prompt of random ids, which no cache has."""
        most = max(8, int(ROOM * int(self.plan["vocab"])))
        return ServerRequest(tuple(self.draws.randrange(3, most) for _ in range(length)), tokens)

    def send(self, requests: Sequence[ServerRequest], began: threading.Semaphore | None = None) -> list[StreamedAnswer]:
        return self.client.send(self.model, requests, began)

    def warm(self) -> None:
        """What the first requests of a server wait for; and the seconds of a short prompt's token."""
        until = time.monotonic() + LEAVING
        while (others := requests_of(self.client)) > 0 and time.monotonic() < until:
            time.sleep(LEAVING / 10)
        if others > 0:
            hint = "Passes of other people's requests cannot be told from ours: measure it when nobody else uses it."
            raise SpecError("--server", f"{others} requests that are not ours", "a server without other requests", hint)
        self.each = median(one.seconds_each for one in self.send([self.random_prompt(SHORT, 8) for _ in range(2)]))
        self.shortest = median(self.send([self.random_prompt(16, 1)])[0].first_seconds for _ in range(3))

    def measure(self, load: ServerLoad, allowed: float = 60.0) -> SeenPass:
        """The passes of a load, for about `allowed` s: fewer of them where they are slow."""
        return {"prompts": self._send_prompts, "decodes": self._send_decodes, "mixed": self._send_mixed}[load.kind](load, allowed)

    def _send_decodes(self, load: ServerLoad, allowed: float) -> SeenPass:
        tokens = load.tokens_within(allowed / self.each)
        found = decoding_passes(self.send([self.random_prompt(load.context, tokens) for _ in range(load.decodes)]))
        self.each = median(found.seconds) if found.seconds else self.each
        return found

    def _send_prompts(self, load: ServerLoad, allowed: float) -> SeenPass:
        seconds, alone, until = [], [], time.monotonic() + allowed
        for number in range(REPEATS):
            if number and time.monotonic() > until:
                break
            full: list[StreamedAnswer] = []
            blocker, waiting = self.random_prompt(self.step, 1), [self.random_prompt(load.prompt, 1) for _ in range(load.chunks)]
            thread = _Sender(self, [blocker], full)
            time.sleep(BEHIND)
            prompts = self.send(waiting)
            thread.finish()
            took = prompts_behind(full[0], prompts, self.shortest)
            if took is not None:
                seconds.append(took)
            alone.append(self.send([self.random_prompt(load.prompt, 1)])[0].first_seconds)
        usual = median(seconds) if seconds and load.chunks == 1 else None
        return SeenPass(tuple(seconds), 0.0, () if usual is None else tuple(max(0.0, one - usual) for one in alone))

    def _send_mixed(self, load: ServerLoad, allowed: float) -> SeenPass:
        answers: list[StreamedAnswer] = []
        began = threading.Semaphore(0)
        tokens = load.tokens_within(allowed / self.each)
        thread = _Sender(self, [self.random_prompt(load.context, tokens) for _ in range(load.decodes)], answers, began)
        for _ in range(load.decodes):
            began.acquire()
        prompts = [self.send([self.random_prompt(load.prompt, 1)])[0] for _ in range(BESIDE)]
        thread.finish()
        return prompts_beside(answers, prompts)

    def closed_loop(self, users: int, length: int, tokens: int, each: int) -> list[StreamedAnswer]:
        """Answers of `users`, each with `each` requests of `length` + `tokens` tokens, one after the other."""
        shared: list[list[StreamedAnswer]] = [[] for _ in range(users)]
        errors: list[Exception] = []

        def ask(into: list[StreamedAnswer]) -> None:
            try:
                for _ in range(each):
                    into += self.send([self.random_prompt(length, tokens)])
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
        self,
        passes: ServedPasses,
        requests: Sequence[ServerRequest],
        into: list[StreamedAnswer],
        began: threading.Semaphore | None = None,
    ) -> None:
        self.error: Exception | None = None
        self.began, self.count = began, len(requests)
        self.thread = threading.Thread(target=self._run, args=(passes, requests, into), daemon=True, name="windtunnel-sender")
        self.thread.start()

    def _run(self, passes: ServedPasses, requests: Sequence[ServerRequest], into: list[StreamedAnswer]) -> None:
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


def row_of(load: ServerLoad, found: SeenPass, plan: Mapping[str, Any]) -> dict[str, Any]:
    """A pass as a row of a dataset: level step, what it computed as its shape."""
    pairs = load.chunks * load.prompt * (load.prompt + 1) // 2
    shape: dict[str, int | str] = {
        "load": load.name, "prompt": load.chunks * load.prompt, "chunks": load.chunks, "pairs": pairs, "decodes": load.decodes,
        "cached": round(found.cached),
    }  # fmt: skip
    form = str(plan["weights"])
    return {
        "level": "step", "op": "step", "name": ENGINE_PASS, "phase": "forward", "mode": "eager",
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
    rounds: int = ROUNDS,
) -> None:  # fmt: skip
    """Measures the loads of a plan until `ends` on the monotonic clock, and writes the data card: those that `folder` has not, then
    all of them in further `rounds`, of which the quickest is kept.

    SpecError for kinds of loads that are none, for a server that others use, and as of `ServerClient`.
    """
    for word in only:
        if word not in KINDS:
            raise SpecError("--only", word, ", ".join(KINDS))
    passes = ServedPasses(plan)
    passes.client.ends = ends
    session = Session(folder / FILE, about_of(gpu, plan, passes.client.round_trip()), resume=True)
    chosen = [load for load in loads_of(plan) if not only or load.kind in only]
    left = [load for load in chosen if load.name not in _rows_by_load(session)]
    sent, unclear = 0, set()
    try:
        passes.warm()
        for turn in range(rounds):
            for number, load in enumerate(now := chosen if turn else left):
                remaining = ends - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError("no time left")
                found = passes.measure(load, SHARE * remaining / (len(now) - number))
                sent += 1
                if found.seconds:
                    _keep_quickest(session, row_of(load, found, plan))
                elif load.name not in _rows_by_load(session):
                    unclear.add(load.name)
    except TimeoutError:
        pass
    finally:
        session.save()
    known = _rows_by_load(session)
    tell(f"passes: {sent} loads sent, {len(known)} measured, {sum(load.name not in known for load in chosen)} left")
    if unclear - set(known):
        tell(f"  could not be told apart: {', '.join(sorted(unclear - set(known)))}")
    write_card(folder, str(plan["model"]), CARD)


def _rows_by_load(session: Session) -> dict[str, str]:
    """The key of the row of each load by its name."""
    return {str(read_shape(str(row["shape"]))["load"]): key for key, row in session.rows.items()}


def _keep_quickest(session: Session, row: dict[str, Any]) -> None:
    """Adds a row, unless the load's own one is quicker."""
    key = _rows_by_load(session).get(str(read_shape(row["shape"])["load"]))
    if key is not None and session.rows[key]["seconds"] <= row["seconds"]:
        return
    if key is not None:
        del session.rows[key]
    session.add(row)
