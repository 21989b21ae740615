"""A served model's host and client, corrected by one measured result.

Of a result two figures are taken: the time of each further token, and that to the first one. What passes take longer than predicted
is host time between them (`gap`): schedulers, detokenisers and Python are what differs most between versions of an engine and
machines. Where a server is faster than its passes even without any, its kernels are (`kernels`). What is left of the first token is
the front end and the client (`client`), which ends no pass but is a part of each user's round.

On the public servers of the tests (silicon_sample.csv of ai-dynamo/aiconfigurator) each load of a server predicts the others: the
error of a token falls from 16 % to 9 % (Qwen3-32B, vLLM, H100) and from 26 % to 4 % (Qwen3.5-397B, SGLang, B200); where it was
7 % it is 7 to 9 % afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError
from windtunnel.formats.logs.served import MeasuredServer
from windtunnel.serving.answer import Served
from windtunnel.serving.load import ServeLoad
from windtunnel.serving.predict import serve
from windtunnel.serving.server import Server
from windtunnel.spec.common import NonNegativeFloat, Noun, PositiveFloat
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import read_table

ROUNDS = 6
"""Rounds of prediction and correction: batches follow from how long passes take."""

_SETTLED = 1e-4
_STATISTICS = ("mean", "p50")
TABLE = "server"
"""The table of a file that holds a calibration of a server."""


class ServerCalibration(Noun):
    """`gap`: seconds of host work between passes; `kernels`: seconds of a pass's kernels over the predicted ones; `client`: seconds
    of the front end and the client before a first token; `source`: whose result they are fitted to."""

    gap: NonNegativeFloat
    kernels: PositiveFloat = 1.0
    client: NonNegativeFloat = 0.0
    source: str = ""

    def apply(self, server: Server) -> Server:
        """The server with these in place of its engine's."""
        return replace(server, engine=replace(server.engine, gap=self.gap, kernels=self.kernels, client=self.client))

    def in_words(self) -> str:
        """What it changes, for notes."""
        faster = f", kernels x {self.kernels:.2f}" if self.kernels != 1.0 else ""
        return f"host {1e3 * self.gap:.2f} ms a pass{faster}, client {1e3 * self.client:.0f} ms, by {self.source}"


@dataclass(frozen=True)
class JudgedLoad:
    """A measured load: its result as printed, and as predicted `before` and `after` the calibration."""

    measured: MeasuredServer
    before: Served
    after: Served

    def errors(self, answer: Served) -> dict[str, float]:
        """Predicted over measured, less 1, of the figures that were printed."""
        rows = replace(answer, measured=self.measured).measured_rows
        return {row.figure: row.off for row in rows if row.figure != "cache_tokens"}


@dataclass(frozen=True)
class CalibratedServer:
    """A calibration by the first of `loads`; the others were left out of it. `usual`: what the engine has without it."""

    calibration: ServerCalibration
    usual: ServerCalibration
    loads: tuple[JudgedLoad, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys."""
        judged = [
            {"source": load.measured.source, "before": load.errors(load.before), "after": load.errors(load.after)}
            for load in self.loads
        ]
        return {"calibration": self.calibration.model_dump(), "usual": self.usual.model_dump(), "loads": judged}


def read_server_calibration(path: str | Path) -> ServerCalibration:
    """A file that `windtunnel calibrate RESULT` wrote. FileError for one that cannot be read, SpecError for another one."""
    table = read_table(Path(path)).get(TABLE)
    if not isinstance(table, dict):
        raise SpecError("--calibration", str(path), f"a file with a table {TABLE}, as `windtunnel calibrate RESULT -o FILE` writes")
    try:
        return ServerCalibration.model_validate(table)
    except ValidationError as error:
        raise explain(error, ServerCalibration, TABLE) from None


def calibrate_server(measured: Sequence[tuple[MeasuredServer, Server, ServeLoad]], source: str = "") -> CalibratedServer:
    """A calibration by the first of the measured loads, and how well it predicts all of them.

    SpecError for a result that prints neither a time of each further token nor a rate of tokens.
    """
    first, server, load = measured[0]
    engine = server.engine
    usual = ServerCalibration(gap=engine.gap, kernels=engine.kernels, client=engine.client)
    found, answer = usual, serve(server, load)
    wanted, figure = _target(first)
    for _ in range(ROUNDS):
        predicted = _figure_of(answer, figure)
        if abs(predicted / wanted - 1.0) < _SETTLED:
            break
        found = _correct_calibration(found, answer, predicted, wanted)
        answer = serve(found.apply(server), load)
    statistic = next((name for name in _STATISTICS if first.figures.get("ttft", {}).get(name)), None)
    if statistic is not None:
        left = first.figures["ttft"][statistic] - getattr(answer.ttft, statistic)
        found = found.model_copy(update={"client": max(0.0, left)})
    found = found.model_copy(update={"source": source or first.source})
    loads = [
        JudgedLoad(said, serve(server_of_load, load), serve(found.apply(server_of_load), load))
        for said, server_of_load, load in measured
    ]
    return CalibratedServer(found, usual, tuple(loads))


def _target(measured: MeasuredServer) -> tuple[float, str]:
    """(seconds of each further token of a result, whose statistic), or of all tokens where it prints their rate alone."""
    for statistic in _STATISTICS:
        if seconds := measured.figures.get("tpot", {}).get(statistic):
            return float(seconds), statistic
    if rate := measured.figures.get("tokens_per_s"):
        return 1.0 / float(rate), ""
    raise SpecError("RESULT", measured.source, "a result with a time per output token, or output tokens a second")


def _figure_of(answer: Served, figure: str) -> float:
    return float(getattr(answer.tpot, figure)) if figure else 1.0 / answer.tokens_per_s


def _correct_calibration(found: ServerCalibration, answer: Served, predicted: float, wanted: float) -> ServerCalibration:
    """The next guess: seconds of a pass that are missing become host time; of those that are too many the host's go first, then
    the kernels'."""
    each = answer.tpot.mean if math.isfinite(answer.tpot.mean) else predicted
    missing = each * (wanted / predicted - 1.0) * (answer.accepted or 1.0)
    if found.gap == 0.0:  # the host is at its least
        return found.model_copy(update={"kernels": found.kernels * wanted / predicted})
    return found.model_copy(update={"gap": max(0.0, found.gap + missing)})


def plain_calibration(calibration: ServerCalibration) -> dict[str, Any]:
    """The table of a file that `read_server_calibration` reads."""
    return {TABLE: calibration.model_dump()}


__all__ = ["CalibratedServer", "ServerCalibration", "calibrate_server", "plain_calibration", "read_server_calibration"]
