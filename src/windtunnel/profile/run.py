"""Runs cases and writes a dataset of layers, sub-modules and steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import EngineError, SpecError, UnknownName
from windtunnel.profile.case import Case, check_case
from windtunnel.profile.closure import TOLERANCE, Agreement
from windtunnel.profile.device import Device, open_device
from windtunnel.profile.power import meter
from windtunnel.profile.session import Report, Session
from windtunnel.records import LEVELS, MODES, About, read

if TYPE_CHECKING:
    from windtunnel.profile.layers.study import Effort
    from windtunnel.profile.memory import MemoryTimeline
    from windtunnel.profile.modules.family import ModuleFamily

DEVICE_MODES = {True: MODES, False: ("eager", "compile")}


@dataclass(frozen=True)
class RunSettings:
    """Settings shared by a file's rows. None: the device's default (`on`). `attempts`: number of measurements of a case that fails
    the closure check, because a disturbed machine also fails it; the last one is kept."""

    warmup: int | None = None
    repeats: int | None = None
    layers: tuple[int, ...] = (1, 2, 4, 8)
    levels: tuple[str, ...] = ("layer", "submodule", "step")
    modes: tuple[str, ...] = ("eager",)
    libraries: tuple[str, ...] = ("windtunnel", "hf")
    tolerance: float | None = None
    seed: int = 0
    attempts: int = 2

    def on(self, cuda: bool) -> RunSettings:
        """Checked, and filled in: 10 and 20 repetitions on a GPU, 3 and 10 on a CPU. Raises SpecError and UnknownName."""
        for option, given, known in (("--level", self.levels, LEVELS), ("--modes", self.modes, MODES)):
            for word in given:
                if word not in known:
                    raise UnknownName(option, word, known)
            if not given:
                raise SpecError(option, given, ", ".join(known))
        from windtunnel.profile.modules.family import LIBRARIES

        for library in self.libraries:
            if library not in LIBRARIES:
                raise UnknownName("--libraries", library, LIBRARIES)
        for mode in self.modes:
            if mode not in DEVICE_MODES[cuda]:
                raise SpecError("--modes", mode, "eager or compile on a CPU")
        filled = replace(
            self,
            warmup=(10 if cuda else 3) if self.warmup is None else self.warmup,
            repeats=(20 if cuda else 10) if self.repeats is None else self.repeats,
            tolerance=TOLERANCE["cuda" if cuda else "cpu"] if self.tolerance is None else self.tolerance,
        )
        if not filled.layers or min(filled.layers) < 1:
            raise SpecError("--layers", list(filled.layers), "numbers of layers from 1 on, such as 1,2,4,8")
        counts = (("--warmup", filled.warmup, 0), ("--repeats", filled.repeats, 1), ("attempts", filled.attempts, 1))
        for option, number, least in counts:
            if number is None or number < least:
                raise SpecError(option, number, f"{least} or more")
        return filled

    def effort(self) -> Effort:
        """For `layers.study`; only after `on`."""
        from windtunnel.profile.layers.study import Effort

        return Effort(self.warmup or 0, self.repeats or 1, self.layers, self.levels, self.tolerance or 0.0, self.seed)

    def words(self) -> dict[str, str]:
        """Settings that a resumed run shares with the file: protocol and tolerance, not levels and modes."""
        return {"warmup": str(self.warmup), "repeats": str(self.repeats), "tolerance": str(self.tolerance), "seed": str(self.seed)}


@dataclass
class Outcome:
    """The outcome of a run. Keys have one line per case. `kept_out`: implementations without rows, with the reason."""

    path: Path
    measured: int = 0
    resumed: int = 0
    left: int = 0
    rows: int = 0
    stopped: bool = False
    seconds: float = 0.0
    open: dict[str, str] = field(default_factory=dict)
    oom: list[str] = field(default_factory=list)
    kept_out: dict[str, str] = field(default_factory=dict)
    timelines: dict[str, MemoryTimeline] = field(default_factory=dict)


def run(
    cases: Sequence[Case],
    device: Device | str,
    out: str | Path,
    settings: RunSettings | None = None,
    *,
    resume: bool = False,
    budget: float | None = None,
    report: Report = lambda share: False,
) -> Outcome:
    """Measures every case in every implementation and mode, and writes `out` as it goes.

    Ends early if `report` requests it (the current case is dropped) or after `budget` seconds (the current case is finished first).
    Raises SpecError if a resumed file is of another device, driver, library or setting; FileError if `out` exists without
    resume; EngineError if the device fails. Rows measured before stay in the file.
    """
    from windtunnel.profile.datasheet import about

    place = open_device(device) if isinstance(device, str) else device
    how = (settings or RunSettings()).on(place.cuda)
    watch = meter(place.cuda, place.index)
    units = [(check_case(case), library, mode) for case in cases for library in how.libraries for mode in how.modes]
    description = about(place, watch, measure_sheet=not (resume and Path(out).exists()))
    description = replace(
        description, libraries={**description.libraries, **_transformers(how)}, settings={**description.settings, **how.words()}
    )
    if resume and Path(out).exists():
        _same_settings(read(out).about, description, str(out))
    began = time.monotonic()
    outcome = Outcome(Path(out))
    with Session(out, description, resume) as session:
        for number, unit in enumerate(units):
            spent = time.monotonic() - began
            if report(number / len(units)) or (budget is not None and spent >= budget):
                outcome.stopped, outcome.left = True, len(units) - number
                break
            if not _one(unit, place, watch, how, session, outcome, partial(_part, report, number, len(units))):
                outcome.stopped, outcome.left = True, len(units) - number
                break
            session.save()
        outcome.rows = len(session.rows)
    outcome.seconds = time.monotonic() - began
    return outcome


def _part(report: Report, number: int, of: int, share: float) -> bool:
    """Reports the share of one unit as a share of all."""
    return report((number + share) / of)


def _one(
    unit: tuple[Case, str, str], device: Device, watch: Any, how: RunSettings, session: Session, outcome: Outcome, report: Report
) -> bool:
    """Measures one case in one implementation and mode; False if it was told to stop."""
    from windtunnel.profile.layer_timing import Stopped
    from windtunnel.profile.layers.rows import Rows
    from windtunnel.profile.layers.study import Study
    from windtunnel.profile.modules.family import family_of

    case, library, mode = unit
    name = f"{case.model.name}, {library}, {mode}, {case.dtype}, {case.shape('layer')}"
    if _has_all_rows(session, case, library, mode, how):
        outcome.resumed += 1
        return True
    family = family_of(library, case)
    if isinstance(family, str):
        outcome.kept_out[name] = family
        return True
    reason, against = _compare_outputs(case, family, library, mode, device, how.seed)
    if reason:
        outcome.kept_out[name] = reason
        return True
    effort = how.effort()
    steps = (len(effort.layers) + 5) * (effort.warmup + effort.repeats)
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        if report(min(1.0, count / steps)):
            raise Stopped

    for _ in range(how.attempts):
        try:
            measured = Study(case, family, mode, device, watch, effort, tick).measure()
        except Stopped:
            return False
        except RuntimeError as error:
            _check_device_responds(error, name, device, session)
            outcome.kept_out[name] = f"{mode} fails: {(str(error).splitlines() or [''])[0][:200]}"
            return True
        rows = Rows(case, library, mode, measured, effort, f"windtunnel profile run on {device.name}", against)
        if not rows.open:
            break
    for row in rows.all():
        session.add(row)
    outcome.measured += 1
    outcome.oom += [f"{name}, {layers} layers" for layers, timed in measured.stacks.items() if timed is None]
    if rows.open:
        outcome.open[name] = "; ".join(f"{phase}: {words}" for phase, words in rows.open.items())
    if measured.fitting:
        memory = measured.fitting[max(measured.fitting)].memory
        if memory is not None:
            outcome.timelines[name] = memory.timeline
    return True


def _compare_outputs(case: Case, family: ModuleFamily, library: str, mode: str, device: Device, seed: int) -> tuple[str, Agreement]:
    """Why an implementation cannot be used (empty: it can), and what it was compared with: another library's with ours, another
    mode with the eager one."""
    from windtunnel.profile.layers.study import compare_modes
    from windtunnel.profile.modules.compare import compare_or_reason

    reason, against = "", Agreement()
    if library != "windtunnel":
        reason, error = compare_or_reason(case, family, device, seed)
        against = Agreement("windtunnel", error)
    if not reason and mode != "eager":
        against = compare_modes(case, family, mode, device, seed)
    return reason, against


def _check_device_responds(error: RuntimeError, name: str, device: Device, session: Session) -> None:
    """Raises EngineError if the device no longer responds; the file keeps all rows measured before."""
    try:
        device.torch.zeros(1, device=device.place)
        device.synchronize()
    except RuntimeError:
        session.save()
        raise EngineError(f"{device.name} failed on {name}: {str(error)[:200]}") from error


def _has_all_rows(session: Session, case: Case, library: str, mode: str, how: RunSettings) -> bool:
    """Whether the file already has all rows that a run would write for the case, as far as that is known in advance."""
    needed = {("layer", case.shape("layer", n)) for n in how.layers} if "layer" in how.levels else set()
    if "submodule" in how.levels:
        needed |= {("submodule", case.shape(op)) for op in ("embedding", "head")}
    if "step" in how.levels:
        needed.add(("step", case.shape("step")))
    if "kernel" in how.levels and mode == "eager":
        needed.add(("kernel", case.shape("layer")))
    done = set()
    for row in session.rows.values():
        if row.get("library") == library and row["mode"] == mode and row["dtype"] == case.dtype and row.get("shape"):
            words = row["shape"].split()
            kept = words if row["level"] != "step" else [word for word in words if not word.startswith("layers=")]
            done.add((row["level"], " ".join(kept)))
    return bool(needed) and needed <= done


def _same_settings(was: About, now: About, path: str) -> None:
    for key, value in now.settings.items():
        if was.settings.get(key) != value:
            raise SpecError(
                f"{path}: about.settings.{key}",
                was.settings.get(key),
                f"{value!r}, what this run would measure with",
                "Give the same settings, or write into another file; two profiles are never mixed.",
            )


def _transformers(how: RunSettings) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"transformers": version("transformers")} if "hf" in how.libraries else {}
    except PackageNotFoundError:
        return {}
