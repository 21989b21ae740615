"""What is measured on one machine, in which order and why; its file; and its run within a budget.

A run is a process of its own, `python -m windtunnel.profile.campaign DIR`, which `supervise` ends by the clock: one kernel or one
compilation can outlast any check between repetitions. It needs torch, numpy, pyarrow and pydantic, and nothing compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass, field, replace
from windtunnel.base.errors import EngineError, FileError, SpecError, WindtunnelError
from windtunnel.profile import power
from windtunnel.profile.data_card import write_card
from windtunnel.profile.datasheet import about
from windtunnel.profile.device import KEEPING, Device, open_device
from windtunnel.profile.plan_slice import PlanSlice, kernels_of, slice_of, slice_table
from windtunnel.profile.session import Session, is_same_device, key_of
from windtunnel.profile.sweep import TURN, sweep
from windtunnel.profile.sweep_names import name_kernels
from windtunnel.profile.timing import Protocol
from windtunnel.records import About, read

FILE = "plan.json"
FORMAT = 1

STORAGE = "storage"
"""The slice of files, and its file's name: it describes a file system, and no rates of a device."""

NAMING = 0.12
"""Share of a slice kept for the names of its kernels."""

FULL = 15 * 2**20
"""B. A file that has grown beyond this takes no more rows."""

SHORT_BUDGET = 90.0
"""s. A slice of layers with less runs one warm-up and three repetitions of 1 and 2 layers."""

CLOSING = 0.03
"""Share of the budget that is kept for the card and the end of the processes."""

GRACE = 0.01
"""Share of the budget after which a run is interrupted, and has `LAST` s to write its rows before it is killed."""
LAST = 0.03

SAID = "windtunnel: "
"""How the measuring process begins the line of an error that it names."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Campaign:
    """What is measured on `device` (auto, cpu, cuda) for predictions on `gpu`: slices in their order. `threads`: of a CPU, 0: as
    they are. `jobs`: names or files of the jobs that are asked about, with their changes."""

    gpu: str
    device: str
    budget: float
    slices: tuple[PlanSlice, ...]
    jobs: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    threads: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    """Share of the stated error of the asked predictions by what it is of: class of kernels, collectives."""
    server: dict[str, Any] = field(default_factory=dict)
    """A running server whose passes are measured by their streams (`profile.served`): its address and facts; it has no slices."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, from which `campaign_of` makes it again."""
        table = asdict(replace(self, slices=()))
        table["slices"] = [slice_table(part) for part in self.slices]
        return {"format": FORMAT, **table}


def campaign_of(table: Any, path: str = FILE) -> Campaign:
    """Inverse of `Campaign.as_dict`. FileError for other data."""
    try:
        if table.pop("format") != FORMAT:
            raise ValueError("another version")
        slices = tuple(slice_of(part) for part in table.pop("slices"))
        return Campaign(**{**table, "slices": slices, "jobs": tuple(table["jobs"]), "sets": tuple(table["sets"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(path, str(error).splitlines()[0][:120], "a plan that `windtunnel measure plan` wrote") from error


def write_campaign(campaign: Campaign, folder: Path) -> Path:
    """Writes `plan.json` into `folder`, which is made. FileError if it cannot be."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(campaign.as_dict(), indent=1), encoding="utf-8")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a folder that can be written") from error
    return path


def read_campaign(folder: Path) -> Campaign:
    """The plan of a folder. FileError where there is none."""
    path = folder / FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = f"Type: windtunnel measure plan JOB --out {folder}."
        raise FileError(str(path), error.strerror or str(error), "a folder with a plan", hint) from error
    except ValueError as error:
        raise FileError(str(path), "no JSON", "a plan that `windtunnel measure plan` wrote") from error
    return campaign_of(table, str(path))


def supervise(folder: Path, budget: float, only: Sequence[str] = (), tell: Tell = print) -> float:
    """Runs the plan of `folder` in a process of its own for `budget` s; returns the seconds that it took, at most 1.08 times that.

    What was measured until then is in the files, and the next call goes on. Raises WindtunnelError for what the run refuses.
    """
    began = time.monotonic()
    command = [sys.executable, "-m", "windtunnel.profile.campaign", str(folder), "--ends", repr(began + (1 - CLOSING) * budget)]
    command += ["--only", ",".join(only)] if only else []
    source = str(Path(__file__).parents[2])
    environment = {**os.environ, **KEEPING, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        told, error = _wait_until(process, began + budget * (1 + GRACE), max(0.5, budget * LAST))
    except BaseException:
        _kill(process, signal.SIGKILL)
        raise
    for line in told.splitlines():
        tell(line)
    seconds = time.monotonic() - began
    if process.returncode > 0:
        said = next((line for line in error.splitlines() if line.startswith(SAID)), None)
        raise EngineError(said.removeprefix(SAID) if said else f"the measuring process failed: {error.strip()[-400:]}")
    return seconds


def _wait_until(process: subprocess.Popen[str], until: float, last: float) -> tuple[str, str]:
    """What the process printed: it is interrupted at `until`, and killed `last` s after that, with all that it started."""
    for number, seconds in ((signal.SIGINT, max(0.0, until - time.monotonic())), (signal.SIGKILL, last)):
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process, number)
    return process.communicate()


def _kill(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def run_slices(
    campaign: Campaign, folder: Path, ends: float, device: Device, only: Sequence[str] = (), protocol: Protocol | None = None,
    tell: Tell = print,
) -> None:  # fmt: skip
    """Measures the slices into `folder` until `ends` on the monotonic clock, and writes the data card. Files there are continued.

    The unused time of a slice goes to the later ones. SpecError for a slice that the plan does not have, and for a plan of another
    device than this.
    """
    if campaign.gpu != device.gpu:
        hint = "Run it where that GPU is: the folder can be copied. Or plan for --gpu auto."
        raise SpecError(f"{FILE}: gpu", campaign.gpu, f"{device.gpu}, which this machine has", hint)
    for word in only:
        if word not in (part.name for part in campaign.slices):
            raise SpecError("--only", word, ", ".join(part.name for part in campaign.slices))
    chosen = [part for part in campaign.slices if not only or part.name in only]
    watch = power.meter(device.cuda, device.index)
    if campaign.threads and not device.cuda:
        device.torch.set_num_threads(campaign.threads)
    described = described_device(folder, device, watch)
    for index, part in enumerate(chosen):
        remaining = ends - time.monotonic()
        allowed = remaining * part.share / sum(later.share for later in chosen[index:])
        if remaining <= 0:
            tell(f"{part.name}: no time left")
            continue
        if part.kind == "collectives":
            from windtunnel.profile.ranks import measure_calls

            tell(f"{part.name}: {measure_calls(folder / f'{part.name}.json', part.ranks, part.gradient_bytes, allowed)}")
            continue
        if part.kind == STORAGE:
            from windtunnel.profile.storage.run import measure_storage

            measure_storage(part, folder / f"{part.name}.parquet", described, device, allowed, tell)
            continue
        path, before = _file(folder, part.name, described)
        if part.kind == "layers":
            _measure_layers(part, path, allowed, device, tell)
        else:
            _measure_kernels(part, path, before, allowed, device, watch, described, protocol, tell)
    write_card(folder, ", ".join(campaign.jobs) or campaign.gpu)


def described_device(folder: Path, device: Device, watch: Any) -> About:
    """The description of the files of `folder`: its measured data sheet is that of the first of them, so that all rows of a folder
    can be fitted together."""
    earlier = [path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(STORAGE)]
    described = about(device, watch, measure_sheet=not earlier)
    if earlier:
        described = replace(described, datasheet=read(earlier[0]).about.datasheet)
    return described


def _measure_kernels(
    part: PlanSlice, path: Path, before: set[str], allowed: float, device: Device, watch: Any, described: About,
    protocol: Protocol | None, tell: Tell,
) -> None:  # fmt: skip
    session = Session(path, described, resume=True)
    cases = [case for case in kernels_of(part, device.cuda) if case.key not in before]
    how = protocol or Protocol(most_seconds=min(1.0, max(0.05, allowed / 60)))
    naming = NAMING if device.cuda else 0.0
    budget, between = (1 - naming) * allowed, min(part.step_bytes, TURN * device.l2)
    outcome = sweep(cases, device, session, budget=budget, meter=watch, protocol=how, between=between)
    named = name_kernels(cases, device, session, naming * allowed)
    tell(
        f"{part.name}: {outcome.measured} measured, {outcome.resumed} from before, {outcome.oom} did not fit, "
        f"{outcome.left} left, {named} named, {outcome.seconds:.0f} s"
    )
    for why, count in sorted(outcome.skipped.items(), key=lambda pair: -pair[1])[:12]:
        tell(f"  skipped {count}: {why}")


def _measure_layers(part: PlanSlice, path: Path, allowed: float, device: Device, tell: Tell) -> None:
    """Ends after `allowed` s; a case that is not finished then is dropped."""
    from windtunnel.profile.run import RunSettings
    from windtunnel.profile.run import run as measure_layers

    ends = time.monotonic() + allowed
    levels = ("layer", "submodule", "step", "kernel")
    quick = RunSettings(warmup=1, repeats=3, layers=(1, 2), attempts=1, levels=levels, modes=part.modes)
    settings = quick if allowed < SHORT_BUDGET and not device.cuda else RunSettings(levels=levels, modes=part.modes)
    outcome = measure_layers(
        [part.case], device, path, settings, resume=True, budget=allowed, report=lambda share: time.monotonic() > ends
    )
    tell(
        f"{part.name}: {outcome.measured} measured, {outcome.resumed} from before, {len(outcome.oom)} did not fit, "
        f"{outcome.left} left, {len(outcome.open)} open, {outcome.seconds:.0f} s"
    )
    for name, why in {**outcome.open, **outcome.kept_out}.items():
        tell(f"  {name}: {why}")


def _file(out: Path, name: str, described: About) -> tuple[Path, set[str]]:
    """The slice's file, and the keys of its earlier files that can take no more: full, or of another driver or PyTorch."""
    before: set[str] = set()
    for number in range(1, 100):
        path = out / (f"{name}.parquet" if number == 1 else f"{name}-{number}.parquet")
        if not path.exists():
            break
        earlier = read(path)
        if earlier.about.gpu != described.gpu:
            raise SpecError(f"{path}: about.gpu", earlier.about.gpu, f"{described.gpu}, measured now", "Take another folder.")
        # layers state more libraries than kernels do
        shared = {key: value for key, value in earlier.about.libraries.items() if key in described.libraries}
        if is_same_device(replace(earlier.about, libraries=shared), described) and path.stat().st_size < FULL:
            break
        before |= {key_of(row) for row in earlier.rows()}
    return path, before


say = partial(print, flush=True)
"""Progress of the measuring process: what a killed one has said is not lost."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The measuring process; 0, or 2 after an error in one line."""
    parser = argparse.ArgumentParser(prog="python -m windtunnel.profile.campaign", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", help="where plan.json is, and the files go")
    parser.add_argument("--ends", type=float, help="when, on the monotonic clock; default: after the plan's budget")
    parser.add_argument("--only", default="", metavar="SLICE,...", help="these slices of the plan")
    options = parser.parse_args(arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else PyTorch's profiler prints a line at every start and stop
    try:
        campaign = read_campaign(Path(options.folder))
        ends = time.monotonic() + campaign.budget if options.ends is None else options.ends
        only = [word for word in options.only.split(",") if word]
        if campaign.server:
            from windtunnel.profile.served.run import run_loads

            run_loads(campaign.gpu, campaign.server, Path(options.folder), ends, only, tell=say)
            return 0
        run_slices(campaign, Path(options.folder), ends, open_device(campaign.device), only, tell=say)
    except WindtunnelError as error:
        print(f"{SAID}{error}".replace("\n", " "), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("ended at the budget's end; the rows so far are kept")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # at once: on a busy machine PyTorch takes seconds to give its memory back
