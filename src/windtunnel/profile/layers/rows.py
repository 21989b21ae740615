"""The measurements of one case that pass the closure check, as rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.profile.case import Case
from windtunnel.profile.closure import Agreement, Sides, Way, describe, gate, ways
from windtunnel.profile.layer_timing import PHASES, per_layer, slope
from windtunnel.profile.layers.study import Effort, StudyResult, Timed
from windtunnel.profile.layers.trace import Busy, busy_times, by_part, kernel_rows
from windtunnel.profile.timing import KernelTiming

Row = dict[str, Any]

PER_LAYER = "per layer"
"""Prefix of the note of a row with the time of one more layer; its shape has no `layers`."""


def sides_of(measured: StudyResult, phase: str) -> Sides:
    """The measurements, each with the plain passes that alternate with it."""
    step, inside = measured.step, busy_of(measured, phase)
    whole_step = None
    if step:
        ends = sum(step[op].times[phase].seconds for op in ("embedding", "norm", "head"))
        whole_step = Way(step["step"].times[phase].seconds - ends, step["stack"].times[phase].seconds)
    plain = None if measured.traced is None else measured.traced.plain[phase]
    return Sides(
        submodules=None if measured.parts is None else measured.parts.ways[phase],
        kernels=None if inside is None or plain is None else Way(inside.kernels, plain.seconds),
        gaps=0.0 if inside is None or measured.traced is None else inside.gaps - inside.launches * measured.traced.cost,
        step=whole_step,
        host=None if plain is None else plain.host_seconds,
    )


def busy_of(measured: StudyResult, phase: str) -> Busy | None:
    """Kernels and gaps of the profiled stack; None for the optimizer and without a profile."""
    return None if measured.traced is None or phase == "optimizer" else busy_times(measured.traced.traces, phase)


class Rows:
    """Rows of one case, implementation and mode. `open`: failures of the closure check by phase; empty if all pass."""

    def __init__(
        self, case: Case, library: str, mode: str, measured: StudyResult, effort: Effort, source: str,
        against: Agreement | None = None,
    ) -> None:  # fmt: skip
        self.against = against or Agreement()
        self.case, self.library, self.mode, self.measured, self.effort, self.source = case, library, mode, measured, effort, source
        self.rows: list[Row] = []
        self.open: dict[str, str] = {}
        self.said: dict[str, str] = {}
        for phase in ("forward", "backward") if measured.fitting else ():
            sides = sides_of(measured, phase)
            self.said[phase] = describe(sides, effort.tolerance)
            off = gate(sides, effort.tolerance)
            if off:
                self.open[phase] = off

    def all(self) -> list[Row]:
        """All rows of the requested levels."""
        self.rows = []
        self._layers()
        self._submodules()
        self._step()
        self._kernels()
        return [row for row in self.rows if row["level"] in self.effort.levels]

    def _layers(self) -> None:
        measured = self.measured
        for n, timed in measured.stacks.items():
            for phase in PHASES:
                inside = busy_of(measured, phase)
                self._row("layer", "layer", phase, self.case.shape("layer", n), timed, _times(inside, n, measured.deep))
        if len(measured.fitting) < 2:
            return
        for phase in PHASES:
            series = {n: timed.times[phase] for n, timed in measured.fitting.items() if phase in timed.times}
            timing = per_layer(series)
            if timing is None or timing.seconds <= 0:
                continue
            depths = ", ".join(map(str, series))
            remark = f"; {self.said[phase]}" if self.said.get(phase) else ""
            name = next(iter(measured.fitting.values())).name
            most = max(series)
            share = timing.seconds * most / series[most].seconds
            far = not abs(share - 1) <= 2 * self.effort.tolerance
            more = self._gaps(timing.seconds, _times(busy_of(measured, phase), 1, measured.deep))
            kept = slope({n: timed.memory.saved for n, timed in measured.fitting.items() if timed.memory is not None})
            if phase == "forward" and kept is not None and kept >= 0:
                more["saved_bytes"] = kept
            self._add(
                "layer",
                "layer",
                name,
                phase,
                self.case.shape("layer"),
                timing,
                note=f"{PER_LAYER}: slope over {depths} layers, {share:.3f} of {most} layers' share{remark}",
                **more,
            )
            if far:
                self.rows[-1]["status"] = "open"

    def _submodules(self) -> None:
        parts = self.measured.parts
        if parts is not None:
            traced = self.measured.traced
            kernels = {} if traced is None else by_part(traced.traces, traced.part_of)
            for (op, phase), timing in sorted(parts.timings.items()):
                busy = kernels.get((op, phase))
                more = {} if busy is None else {"gap_seconds": max(0.0, timing.seconds - busy)}
                self._add("submodule", op, parts.names[op], phase, self.case.shape(op), timing, "inside a layer, by hooks", **more)
        for op in ("embedding", "head"):
            for phase in ("forward", "backward"):
                self._row("submodule", op, phase, self.case.shape(op), self.measured.step.get(op), None)

    def _gaps(self, seconds: float, inside: Busy | None) -> dict[str, Any]:
        """A time less its kernels (the profiler's gaps are stretched on a slow host), and the number of gaps."""
        if inside is None:
            return {}
        gap = max(0.0, seconds - inside.kernels)
        return {"gap_seconds": gap, "launches": inside.launches} if self.measured.cuda else {"gap_seconds": gap}

    def _timed_error(self, phase: str) -> float | None:
        """How far the profiled kernels and gaps of a pass are from plain passes, as a share; None where no pass was profiled."""
        if self.measured.traced is None or phase not in self.said:
            return None
        closures = ways(sides_of(self.measured, phase), self.effort.tolerance)
        return abs(closures["kernels + gaps"] - 1.0) if "kernels + gaps" in closures else None

    def _kernels(self) -> None:
        for row in kernel_rows([] if self.measured.traced is None else self.measured.traced.traces):
            off = self.open.get(row["phase"], "")
            note = "; ".join(word for word in (f"closure: {off}" if off else "", row["note"] or "") if word)
            self.rows.append(
                {
                    **row,
                    "level": "kernel",
                    "dtype": row["dtype"] or self.case.dtype,
                    "mode": self.mode,
                    "library": self.library,
                    "model": self.case.model.name,
                    "shape": self.case.shape("layer"),
                    "checked_against": None if (error := self._timed_error(row["phase"])) is None else "timed",
                    "max_error": error,
                    "status": "open" if off else "ok",
                    "note": note or None,
                    "source": self.source,
                }
            )

    def _step(self) -> None:
        deep = self.measured.deep or min(self.effort.layers)
        for phase in PHASES:
            self._row("step", "step", phase, self.case.shape("step", deep), self.measured.step.get("step"), None)

    def _row(self, level: str, op: str, phase: str, shape: str, timed: Timed | None, inside: Busy | None) -> None:
        if timed is None:
            self._add(level, op, op, phase, shape, None, note="does not fit into memory")
        elif phase in timed.times:
            timing = timed.times[phase]
            self._add(level, op, timed.name, phase, shape, timing, **_memory(timed, phase), **self._gaps(timing.seconds, inside))

    def _add(
        self, level: str, op: str, name: str, phase: str, shape: str, timing: KernelTiming | None, note: str = "", **more: Any
    ) -> None:
        off = self.open.get(phase, "") if timing is not None else ""
        words = "; ".join(word for word in (f"closure: {off}" if off else "", note, more.pop("note", "")) if word)
        self.rows.append(
            {
                "level": level,
                "op": op,
                "name": name,
                "phase": phase,
                "dtype": self.case.dtype,
                "mode": self.mode,
                "library": self.library,
                "model": self.case.model.name,
                "shape": shape,
                **({} if timing is None else timing.fields()),
                **more,
                "checked_against": self.against.what or None,
                "max_error": self.against.error,
                "status": "oom" if timing is None else "open" if off or self.against.differs else "ok",
                "note": "; ".join(filter(None, (self.against.differs, words))) or None,
                "source": self.source,
            }
        )


def _times(inside: Busy | None, layers: int, deep: int) -> Busy | None:
    """Value for `layers`, scaled from `inside` for `deep` layers."""
    if inside is None:
        return None
    return Busy(inside.kernels * layers / deep, inside.gaps * layers / deep, round(inside.launches * layers / deep))


def _memory(timed: Timed, phase: str) -> Mapping[str, Any]:
    if timed.memory is None or phase not in timed.memory.peak:
        return {}
    cells: dict[str, Any] = {"peak_bytes": timed.memory.peak[phase], "reserved_bytes": timed.memory.reserved.get(phase)}
    if phase == "forward":
        cells["saved_bytes"] = timed.memory.saved
        kinds = timed.memory.timeline.peak()
        cells["note"] = "peak of the step: " + ", ".join(f"{kind} {size:.4g} B" for kind, size in kinds.items())
    return cells
