"""What published servers say of an answer: how far predictions of servers like it were from what was measured.

`catalog/served_accuracy.toml` has a line for each kind of server. `benchmarks/served.py --record` writes it from a table of
measured servers, without one server in five, on which the share inside is checked. A line with an empty field is over all values of
it.
Errors are percentages of the measured figure, with the sign of predicted - measured.

A first token's error has causes of its own, so one width does not fit all loads of a kind: it is stated from the parts of the mean
first token, each with a spread (`FirstSpreads`), and a factor of the kind (`PublishedServers.widen`); where prompts have copies of
their own, it is the kind's alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.predict.published import INSIDE, widening
from windtunnel.spec.loading.files import ROOT, read_table

CARRIED = "carried"
"""The GPU of servers whose kernels nobody measured, on it or on another one of its architecture: shares of peak and bandwidth are
carried."""

UNLIKE = 35.0
"""Per cent, the least error to state of a server that no measured one is like: kernels carried from another maker's GPUs (a token
took 1.1 to 1.3 times as long as predicted in seven loads of MI300X), a group of ranks over NICs (0.8 to 1.4 in four of five
reports), more users than any server of the record had (0.7 to 1.3 with a thousand requests at once)."""

COMPILING = 1.0
"""Seconds that first requests of a cold server wait at least, by the record, if its engine's cold servers have lines of their own:
while kernels are compiled, requests that run get no tokens either."""

FEWEST_WARM = 60
"""Loads of warm servers from which on an engine has spreads of its own."""

FIGURES = ("ttft", "tpot", "throughput")
"""Figures with errors of their own: seconds to the first token, for each further one, and output tokens a second."""


@dataclass(frozen=True)
class ServerKind:
    """What makes servers alike: `trained` is dense or experts, `sides` together, or apart where prompts have copies of their own,
    `drafts` none or some, `start` warm, or cold where the load's first requests find a server that ran nothing before, of an engine
    that compiles kernels then (COMPILING). An empty field stands for any value."""

    gpu: str
    engine: str
    trained: str
    sides: str
    drafts: str = "none"
    start: str = "warm"


@dataclass(frozen=True)
class FigureErrors:
    """Errors of one figure: medians without and with their sign. `inside_pct`: the error inside which seven of ten rows lie
    (`predict.published.INSIDE`); `longer_pct`: lower and upper quartile of measured / predicted - 1."""

    median_pct: float
    bias_pct: float
    inside_pct: float
    longer_pct: tuple[float, float]

    @property
    def error(self) -> float:
        """The error to state, as a share."""
        return self.inside_pct / 100.0

    @property
    def leans(self) -> bool:
        """Whether the middle half of the rows lies on one side of its predictions."""
        low, high = self.longer_pct
        return low > 0.0 or high < 0.0

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> FigureErrors:
        """The errors of a table of the catalogue, as `as_text` writes it."""
        return cls(**{**table, "longer_pct": tuple(table["longer_pct"])})

    def as_text(self) -> str:
        """The errors as a table in a line of TOML, to a tenth of a per cent."""
        low, high = self.longer_pct
        rates = f"median_pct = {self.median_pct:.1f}, bias_pct = {self.bias_pct:.1f}, inside_pct = {self.inside_pct:.1f}"
        return f"{{ {rates}, longer_pct = [{low:.1f}, {high:.1f}] }}"

    def band(self, value: float) -> tuple[float, float]:
        """The measured values of which a predicted one is within the stated error: (least, most); most is infinite from an error
        of 100 %."""
        return value / (1.0 + self.error), value / (1.0 - self.error) if self.error < 1.0 else math.inf


@dataclass(frozen=True)
class FirstToken:
    """What a mean first token is made of, in seconds: the way to the scheduler (`host`), the pass of its own prompt (`own`), and
    passes and requests before it (`wait`). `cold`: the share of requests that are the first ones of a server of `engine` which ran
    nothing before."""

    host: float
    own: float
    wait: float
    cold: float = 0.0
    engine: str = ""

    def shares(self) -> tuple[float, float, float]:
        """What the spreads are factors of: a second, the own pass and the waiting, over the whole."""
        whole = self.host + self.own + self.wait
        return 1.0 / whole, self.own / whole, self.wait / whole


@dataclass(frozen=True)
class FirstSpreads:
    """How far seven of ten measured first tokens are off by what each part brings: shares of `own` and `wait`, and seconds of the
    `host`, whatever the load: HTTP and processes, the client, and the host's calls of a prompt's kernels. `cold`: by engine, the
    seconds for which the first requests of a server that ran nothing before wait while kernels are tuned and compiled. `engines`:
    by engine, its own three, in this order."""

    host: float
    own: float
    wait: float
    cold: Mapping[str, float] = field(default_factory=dict)
    engines: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def of(self, first: FirstToken) -> dict[str, float]:
        """What each part brings, as a share of the prediction."""
        each, own, wait = first.shares()
        host, alone, others = self.engines.get(first.engine, (self.host, self.own, self.wait))
        brought = {"host": host * each, "own": alone * own, "wait": others * wait}
        return brought | ({"cold": self.cold.get(first.engine, 0.0) * first.cold * each} if first.cold else {})

    def spread(self, first: FirstToken) -> float:
        """All parts together, as if each were off by itself."""
        return math.hypot(*self.of(first).values())


@dataclass(frozen=True)
class PublishedServers:
    """Errors of `rows` measured loads of `servers` servers of a kind, of `users` at most. `widen`: the factor on the spread of a
    first token's parts within which seven of ten first tokens lie; 1 where none has parts."""

    kind: ServerKind
    rows: int
    servers: int
    figures: Mapping[str, FigureErrors]
    users: int = 0
    widen: float = 1.0

    def first_error(self, first: FirstToken, spreads: FirstSpreads | None = None) -> float:
        """The error to state of a mean first token made of `first`, as a share of the measured one; `spreads`: left out, the
        catalogue's."""
        longer = self.widen * (catalogue_spreads() if spreads is None else spreads).spread(first)
        return longer / (1.0 + longer)

    def state_first(self, first: FirstToken) -> PublishedServers:
        """The same with the error of a mean first token made of `first`."""
        stated = replace(self.figures["ttft"], inside_pct=100.0 * self.first_error(first))
        return replace(self, figures={**self.figures, "ttft": stated})

    def widen_errors(self) -> PublishedServers:
        """The same for a server that none of them is like."""
        figures = {name: replace(one, inside_pct=max(one.inside_pct, UNLIKE)) for name, one in self.figures.items()}
        return replace(self, figures=figures)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        return {
            **vars(self.kind),
            "rows": self.rows,
            "servers": self.servers,
            "users": self.users,
            "widen": self.widen,
            **{k: vars(v) for k, v in self.figures.items()},
        }


def errors_of_figure(errors: Sequence[float], servers: int | None = None) -> FigureErrors:
    """The line of a figure from its rows' errors, (predicted - measured) / measured; two rows at least. `servers`: whose rows they
    are, since those of one server are off alike."""
    longer = [100.0 * (1.0 / (1.0 + error) - 1.0) for error in errors]
    low, _, high = quantiles(longer, n=4, method="inclusive")
    inside = widening([(abs(error), 1.0) for error in errors], servers)
    return FigureErrors(100.0 * median(map(abs, errors)), 100.0 * median(errors), 100.0 * inside, (low, high))


def fit_spreads(firsts: Sequence[FirstToken], errors: Sequence[float]) -> FirstSpreads:
    """The spreads with which INSIDE of `errors`, shares of measured first tokens with their sign, lie inside what is stated: a
    regression of that quantile (R. Koenker, G. Bassett, Econometrica 46, 1978) on warm servers, of all and of each engine that has
    `FEWEST_WARM`, then for each engine the seconds that its cold ones need beside. Errors above 100 % count as that."""
    rows = list(zip(firsts, errors, strict=True))
    ran = [(first, error) for first, error in rows if not first.cold]
    by_engine = {name: [row for row in ran if row[0].engine == name] for name in sorted({first.engine for first, _ in ran})}
    own = {name: _warm_spreads(rows) for name, rows in by_engine.items() if len(rows) >= FEWEST_WARM and len(by_engine) > 1}
    warm = replace(_warm_spreads(ran), engines={name: (one.host, one.own, one.wait) for name, one in own.items()})
    need: dict[str, list[tuple[float, float]]] = {}
    for first, error in rows:
        if first.cold:
            beside = math.sqrt(max(_longer(error) ** 2 - warm.spread(first) ** 2, 0.0))
            need.setdefault(first.engine, []).append((beside, first.cold * first.shares()[0]))
    return replace(warm, cold={engine: widening(pairs) for engine, pairs in sorted(need.items())})


def _longer(error: float) -> float:
    """How much longer than predicted a first token took whose error is `error`, as a share of the prediction; as much for one that
    was shorter."""
    return abs(error) / (1.0 - abs(error)) if abs(error) < 1.0 else math.inf


def _warm_spreads(rows: Sequence[tuple[FirstToken, float]]) -> FirstSpreads:
    """The spreads of first tokens of servers that ran before."""
    from scipy.optimize import minimize

    shares = np.array([first.shares() for first, _ in rows])
    off = np.minimum(np.abs([error for _, error in rows]), 1.0)

    def loss(logs: Floats) -> float:
        longer = np.sqrt((shares**2) @ np.exp(2.0 * logs))
        beyond = off - longer / (1.0 + longer)
        return float(np.where(beyond > 0.0, INSIDE * beyond, (INSIDE - 1.0) * beyond).mean())

    tries = [
        minimize(
            loss, np.full(shares.shape[1], start), method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-3, "fatol": 1e-7}
        )
        for start in (-2.0, -1.0, 0.0)
    ]
    host, own, wait = np.exp(min(tries, key=lambda one: one.fun).x).tolist()
    return FirstSpreads(host, own, wait)


def first_widening(
    spreads: FirstSpreads, firsts: Sequence[FirstToken], errors: Sequence[float], servers: int | None = None
) -> float:
    """The factor of a kind with these first tokens and errors; as `PublishedServers.widen`."""
    return widening([(_longer(error), spreads.spread(first)) for first, error in zip(firsts, errors, strict=True)], servers)


def kinds_around(kind: ServerKind) -> tuple[ServerKind, ...]:
    """`kind`, and the wider ones that stand in for it, the nearest first. Sides always agree. Servers that draft are nearer to each
    other than to those of the same GPU and engine that do not, cold ones of an engine to each other than to warm ones; carried
    kernels outweigh both."""
    gpu, engine, trained, sides = kind.gpu, kind.engine, kind.trained, kind.sides
    ordered = [(gpu, engine, trained), ("", engine, trained), (gpu, "", trained), ("", "", trained), ("", engine, ""), ("", "", "")]
    if gpu == CARRIED:  # rather other engines and models than measured GPUs
        ordered = [(gpu, engine, trained), (gpu, "", trained), (gpu, "", ""), *ordered]
    plain = gpu == CARRIED
    return tuple(
        ServerKind(*one, sides, drafts, start)
        for drafts in dict.fromkeys(("none",) if plain else (kind.drafts, "none"))
        for start in dict.fromkeys(("warm",) if plain else (kind.start, "warm"))
        for one in ordered
        if one[1] or start == "warm"  # another engine compiles others
    )


def servers_like(kind: ServerKind, record: Mapping[ServerKind, PublishedServers] | None = None) -> PublishedServers | None:
    """The line of `record` (left out: the catalogue's) for the servers nearest to `kind`; None where none was compared."""
    table = catalogue_servers() if record is None else record
    return next((table[near] for near in kinds_around(kind) if near in table), None)


@functools.cache
def catalogue_spreads() -> FirstSpreads:
    """The catalogue's spreads of a first token's parts."""
    return FirstSpreads(**read_table(ROOT / "served_accuracy.toml")["first_token"])


@functools.cache
def catalogue_servers() -> Mapping[ServerKind, PublishedServers]:
    """The catalogue's lines by what they are of."""
    found = {}
    for entry in read_table(ROOT / "served_accuracy.toml")["servers"]:
        kind = ServerKind(*(entry[name] for name in ("gpu", "engine", "trained", "sides", "drafts", "start")))
        figures = {name: FigureErrors.of_table(entry[name]) for name in FIGURES}
        found[kind] = PublishedServers(kind, entry["rows"], entry["servers"], figures, entry["users"], entry["widen"])
    return found


def record_text(lines: Sequence[PublishedServers], spreads: FirstSpreads, source: str) -> str:
    """The catalogue's file as text; the same bytes for equal lines."""
    parts = [
        "# Written by `benchmarks/served.py --record`; do not edit. Errors in percent of the measured figure; an empty\n"
        f'# field stands for any value.\nsource = "{source}"\n\n[first_token]\n'
        + "".join(f"{name} = {getattr(spreads, name):.3f}\n" for name in ("host", "own", "wait"))
        + "cold = { "
        + ", ".join(f"{engine} = {seconds:.1f}" for engine, seconds in spreads.cold.items())
        + " }\n\n[first_token.engines]\n"
        + "".join(f"{name} = [{', '.join(f'{part:.3f}' for part in parts)}]\n" for name, parts in spreads.engines.items())
    ]
    for line in lines:
        text = "".join(f'{name} = "{value}"\n' for name, value in vars(line.kind).items())
        text += f"rows = {line.rows}\nservers = {line.servers}\nusers = {line.users}\nwiden = {line.widen:.3f}\n"
        text += "".join(f"{name} = {line.figures[name].as_text()}\n" for name in FIGURES)
        parts.append("[[servers]]\n" + text)
    return "\n".join(parts)
