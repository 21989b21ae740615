"""What was measured of one case, gated, as rows of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.profile.case import Case
from windtunnel.profile.closure import Sides, describe, gate
from windtunnel.profile.layers_study import Effort, Measured, Timed
from windtunnel.profile.layers_timing import PHASES, per_layer, slope
from windtunnel.profile.layers_trace import Busy, busy, by_part, kernel_rows
from windtunnel.profile.timing import Timing

Row = dict[str, Any]

PER_LAYER = "per layer"
"""Begins the note of a row whose time is what one more layer adds; its shape has no `layers`."""


def sides_of(measured: Measured, phase: str) -> Sides:
    """Seconds a layer takes in `phase`, by each way that was taken."""
    series = {n: made.times[phase] for n, made in measured.fitting.items()}
    deep = measured.deep
    one = per_layer(series)
    share = 1 if one is not None else deep
    timing = one or series[deep]
    between = None
    if measured.step is not None and len(measured.ends) == 3:
        ends = sum(made.times[phase].seconds for made in measured.ends.values())
        between = (measured.step.times[phase].seconds - ends) / deep
    inside = busy_of(measured, phase)
    return Sides(
        layer=timing.seconds / share,
        submodules=None if measured.parts is None else measured.parts.layer[phase],
        kernels=None if inside is None else inside.kernels / deep,
        gaps=0.0 if inside is None else inside.gaps / deep,
        step=between,
        host=None if timing.host_seconds is None else timing.host_seconds / share,
    )


def busy_of(measured: Measured, phase: str) -> Busy | None:
    """Kernels and gaps of the stack that was looked into; None for the optimizer and where nobody looked."""
    if measured.traces is None or phase == "optimizer":
        return None
    return busy(measured.traces, phase, measured.cuda)


class Rows:
    """Rows of one case, implementation and mode. `open`: what the gate found, by phase; empty if all closes."""

    def __init__(self, case: Case, library: str, mode: str, measured: Measured, effort: Effort, source: str) -> None:
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
        """Every row of the levels that were asked for."""
        self.rows = []
        self._layers()
        self._submodules()
        self._step()
        self._kernels()
        return [row for row in self.rows if row["level"] in self.effort.levels]

    def _layers(self) -> None:
        measured = self.measured
        for n, made in measured.stacks.items():
            for phase in PHASES:
                inside = busy_of(measured, phase)
                self._row("layer", "layer", phase, self.case.shape("layer", n), made, _times(inside, n / (measured.deep or 1)))
        if len(measured.fitting) < 2:
            return
        for phase in PHASES:
            series = {n: made.times[phase] for n, made in measured.fitting.items() if phase in made.times}
            timing = per_layer(series)
            if timing is None or timing.seconds <= 0:
                continue
            depths = ", ".join(map(str, series))
            told = f"; {self.said[phase]}" if self.said.get(phase) else ""
            name = next(iter(measured.fitting.values())).name
            more = _gaps(timing.seconds, _times(busy_of(measured, phase), 1 / measured.deep))
            kept = slope({n: made.memory.saved for n, made in measured.fitting.items() if made.memory is not None})
            if phase == "forward" and kept is not None and kept >= 0:
                more["saved_bytes"] = kept
            self._add("layer", "layer", name, phase, self.case.shape("layer"), timing,
                      note=f"{PER_LAYER}: slope over {depths} layers{told}", **more)

    def _submodules(self) -> None:
        parts = self.measured.parts
        if parts is not None:
            kernels = by_part(self.measured.traces or [], self.measured.part_of)
            for (op, phase), timing in sorted(parts.timings.items()):
                busy = kernels.get((op, phase))
                more = {} if busy is None else {"gap_seconds": max(0.0, timing.seconds - busy)}
                self._add("submodule", op, parts.names[op], phase, self.case.shape(op), timing, note="inside a layer, by hooks", **more)
        for op, made in self.measured.ends.items():
            if op != "norm":
                for phase in PHASES:
                    self._row("submodule", op, phase, self.case.shape(op), made, None)

    def _kernels(self) -> None:
        for row in kernel_rows(self.measured.traces or []):
            off = self.open.get(row["phase"], "")
            note = "; ".join(word for word in (f"closure: {off}" if off else "", row["note"] or "") if word)
            self.rows.append({**row, "level": "kernel", "dtype": row["dtype"] or self.case.dtype, "mode": self.mode,
                              "library": self.library, "model": self.case.model.name, "shape": self.case.shape("layer"),
                              "status": "open" if off else "ok", "note": note or None, "source": self.source})

    def _step(self) -> None:
        deep = self.measured.deep or min(self.effort.layers)
        for phase in PHASES:
            self._row("step", "step", phase, self.case.shape("step", deep), self.measured.step, None)

    def _row(self, level: str, op: str, phase: str, shape: str, made: Timed | None, inside: Busy | None) -> None:
        if made is None:
            self._add(level, op, op, phase, shape, None, note="does not fit into memory")
        elif phase in made.times:
            timing = made.times[phase]
            self._add(level, op, made.name, phase, shape, timing, **_memory(made, phase), **_gaps(timing.seconds, inside))

    def _add(
        self, level: str, op: str, name: str, phase: str, shape: str, timing: Timing | None, note: str = "", **more: Any
    ) -> None:
        off = self.open.get(phase, "") if timing is not None else ""
        words = "; ".join(word for word in (f"closure: {off}" if off else "", note, more.pop("note", "")) if word)
        self.rows.append({
            "level": level, "op": op, "name": name, "phase": phase, "dtype": self.case.dtype, "mode": self.mode,
            "library": self.library, "model": self.case.model.name, "shape": shape,
            **({} if timing is None else timing.fields()), **more,
            "status": "oom" if timing is None else "open" if off else "ok", "note": words or None, "source": self.source,
        })


def _times(inside: Busy | None, number: float) -> Busy | None:
    """What `number` times as many layers hold."""
    if inside is None:
        return None
    launches = None if inside.launches is None else round(inside.launches * number)
    return Busy(inside.kernels * number, inside.gaps * number, launches)


def _gaps(seconds: float, inside: Busy | None) -> dict[str, Any]:
    """What the kernels leave of a time: the profiler's own gaps are stretched where the host is slow."""
    return {} if inside is None else {"gap_seconds": max(0.0, seconds - inside.kernels), "launches": inside.launches}


def _memory(made: Timed, phase: str) -> Mapping[str, Any]:
    if made.memory is None or phase not in made.memory.peak:
        return {}
    found: dict[str, Any] = {"peak_bytes": made.memory.peak[phase], "reserved_bytes": made.memory.reserved.get(phase)}
    if phase == "forward":
        found["saved_bytes"] = made.memory.saved
        kinds = made.memory.timeline.peak()
        found["note"] = "peak of the step: " + ", ".join(f"{kind} {size:.4g} B" for kind, size in kinds.items())
    return found
