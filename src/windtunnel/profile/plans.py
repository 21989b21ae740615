"""Whole measurements of a GPU in a few runs: `python -m windtunnel.profile.plans h200 --out DIR --budget 9m`.

A plan is a list of slices, each with its own file and a share of the budget. The same command continues where it
stopped; on a fresh machine, `--from DIR` first copies the files of an earlier run. It needs torch, numpy, pyarrow and pydantic, but
no compiled part of windtunnel.

The data card of a folder of datasets: content, method and conditions of measurement, limits.

Known fields are filled in; what only the operators know is a question in angle brackets. See docs/data-card.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.base.errors import FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.profile import power
from windtunnel.profile.case import Case
from windtunnel.profile.datasheet import about
from windtunnel.profile.device import Device, open_device
from windtunnel.profile.kernels import scope_of
from windtunnel.profile.session import Session, is_same_device, key_of
from windtunnel.profile.sweep import plan, sweep
from windtunnel.profile.sweep_names import name_kernels
from windtunnel.profile.timing import Protocol
from windtunnel.records import About, read
from windtunnel.spec import load_model

NAMING = 0.12
"""Share of a slice kept for the names of its kernels."""

FULL = 15 * 2**20
"""B. A file that has grown beyond this takes no more rows."""

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class KernelSlice:
    """One file of a plan: kernel classes in some modes, and its share of the budget. The rest narrows the scope; empty is all."""

    name: str
    share: float
    classes: tuple[str, ...]
    modes: tuple[str, ...] = ("eager",)
    models: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layers:
    """One file of layers, sub-modules and steps: every model with every cut and sequence, the first of each first."""

    name: str
    share: float
    models: tuple[str, ...]
    tp: tuple[int, ...] = (1,)
    seq: tuple[int, ...] = (4096,)
    modes: tuple[str, ...] = ("eager",)
    dtype: str = "bf16"
    layers: tuple[int, ...] = (1, 2, 4)
    libraries: tuple[str, ...] = ("windtunnel", "hf")
    repeats: int | None = None

    def cases(self) -> list[Case]:
        """Those whose cut divides the model, in the order of value."""
        order = sorted(product(range(len(self.models)), range(len(self.tp)), range(len(self.seq))), key=sum)
        listed = [Case(load_model(self.models[model]), self.seq[seq], 1, self.tp[tp], self.dtype) for model, tp, seq in order]
        return [case for case in listed if case.model.heads % case.tp == 0 and case.model.ffn % case.tp == 0]


POINTWISE = (
    "norm",
    "activation",
    "rope",
    "residual",
    "softmax",
    "cross_entropy",
    "embedding",
    "permute",
    "optimizer",
    "copy",
    "reduce",
    "launch",
)

COMMON = ("llama3-8b", "llama3-70b", "gpt3-175b")

PLANS: Mapping[str, tuple[KernelSlice | Layers, ...]] = {
    "h200": (
        KernelSlice("kernels-pointwise", 0.12, POINTWISE),
        KernelSlice("kernels-gemm", 0.32, ("gemm", "grouped_gemm")),
        KernelSlice("kernels-attention", 0.20, ("attention",)),
        KernelSlice(
            "kernels-modes",
            0.11,
            ("norm", "activation", "rope", "cross_entropy", "gemm"),
            ("compile", "cuda_graph"),
            COMMON,
            (1, 8),
            (4096, 8192),
            ("bf16",),
        ),
        Layers("layers", 0.17, (*COMMON, "llama2-7b", "qwen2.5-7b", "llama3.2-1b"), (1, 8, 4, 2), (4096, 8192, 2048)),
        Layers("layers-modes", 0.08, COMMON, (1, 8), (4096,), ("compile", "cuda_graph"), libraries=("windtunnel",)),
    ),
    "smoke": (
        KernelSlice(
            "kernels-smoke", 1.0, ("launch", "norm", "residual", "gemm"), ("eager",), ("gpt-1.7b",), (8,), (64,), ("fp32",)
        ),
        Layers("layers-smoke", 1.0, ("mpt-125m",), (4,), (64,), dtype="fp32", layers=(1, 2), libraries=("windtunnel",), repeats=3),
    ),
}
"""Name -> its slices, in the order in which they run. `smoke` is a minute of a laptop: whether all the parts fit together."""

Tell = Callable[[str], None]


def run(
    name: str,
    out: Path,
    budget: float,
    device: Device,
    only: Sequence[str] = (),
    protocol: Protocol | None = None,
    tell: Tell = print,
) -> None:
    """Measures plan `name` into `out` for at most `budget` s, continuing existing files; writes the data card at the end.

    The unused time of a slice goes to the later ones. Raises UnknownName for a plan or slice.
    """
    if name not in PLANS:
        raise UnknownName("plan", name, list(PLANS))
    names = [one.name for one in PLANS[name]]
    for word in only:
        if word not in names:
            raise UnknownName("--only", word, names)
    chosen = [one for one in PLANS[name] if not only or one.name in only]
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + budget
    watch = power.meter(device.cuda, device.index)
    described = about(device, watch)
    for index, one in enumerate(chosen):
        remaining = ends - time.monotonic()
        share = one.share / sum(later.share for later in chosen[index:])
        if remaining <= 0:
            tell(f"{one.name}: no time left")
            continue
        path, before = _file(out, one.name, described)
        if isinstance(one, Layers):
            _measure_layers(one, path, share * remaining, device, tell)
            continue
        session = Session(path, described, resume=True)
        cases = plan(scope_of(one.models, one.tp, one.tokens, one.dtypes, device.cuda), one.classes, one.modes)
        if one.modes != ("eager",):
            cases = [case for case in cases if case.mode != "eager" or case.op == "launch"]
        cases = [case for case in cases if case.key not in before]
        outcome = sweep(cases, device, session, budget=(1 - NAMING) * share * remaining, meter=watch, protocol=protocol)
        named = name_kernels(cases, device, session, NAMING * share * remaining)
        tell(
            f"{one.name}: {outcome.measured} measured, {outcome.resumed} from before, {outcome.oom} did not fit, "
            f"{outcome.left} left, {named} named, {outcome.seconds:.0f} s"
        )
        for why, count in sorted(outcome.skipped.items(), key=lambda pair: -pair[1])[:12]:
            tell(f"  skipped {count}: {why}")
    write_card(out, name)


def _measure_layers(one: Layers, path: Path, budget: float, device: Device, tell: Tell) -> None:
    """Begins no case after `budget` s; the last one runs to its end."""
    from windtunnel.profile.run import RunSettings
    from windtunnel.profile.run import run as measure_layers

    settings = RunSettings(repeats=one.repeats, layers=one.layers, modes=one.modes, libraries=one.libraries)
    outcome = measure_layers(one.cases(), device, path, settings, resume=True, budget=budget)
    tell(
        f"{one.name}: {outcome.measured} measured, {outcome.resumed} from before, {len(outcome.oom)} did not fit, "
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0, or 2 after an error in one line."""
    parser = argparse.ArgumentParser(prog="python -m windtunnel.profile.plans", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("plan", help=", ".join(PLANS))
    parser.add_argument("--out", required=True, metavar="DIR", help="where the files are, and go")
    parser.add_argument("--budget", default="9m", metavar="TIME", help="9m, 540s or 1h")
    parser.add_argument("--from", dest="earlier", metavar="DIR", help="files of an earlier run to go on with")
    parser.add_argument("--device", default="auto", help="auto, cuda, rocm or cpu")
    parser.add_argument("--only", default="", metavar="SLICE,...", help="these slices of the plan")
    options = parser.parse_args(arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else PyTorch's profiler prints a line at every start and stop
    try:
        budget = _seconds(options.budget)
        out = Path(options.out)
        if options.earlier:
            _bring(Path(options.earlier), out)
        run(options.plan, out, budget, open_device(options.device), [word for word in options.only.split(",") if word])
    except WindtunnelError as error:
        print(f"windtunnel: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d*)?)(s|m|min|h)", text.strip())
    if match is None:
        raise SpecError("--budget", text, "a time such as 9m, 540s or 1h")
    return float(match[1]) * UNITS[match[2]]


def _bring(earlier: Path, out: Path) -> None:
    """Copies datasets that `out` does not have yet."""
    if not earlier.is_dir():
        raise FileError("--from", str(earlier), "a folder with Parquet files of an earlier run")
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(earlier.glob("*.parquet")):
        if not (out / file.name).exists():
            shutil.copyfile(file, out / file.name)


if __name__ == "__main__":
    sys.exit(main())


CARD = "DATA_CARD.md"

TEXT = """# {device}: times of kernels and layers

## What
{rows:,} rows in {files} Parquet files, schema version {version}, measured with `windtunnel profile` (plan `{plan}`). A row of level
kernel is one operator (usually one kernel) at one shape: its median time with spread, what the host needs to enqueue it, memory,
clock, power where the board tells, and the name of the longest kernel. Rows of the other levels are modules of a layer, layers of a
model and steps on one GPU, each pass apart.

| level | op | dtype | mode | rows | did not fit | shortest | longest |
|---|---|---|---|---:|---:|---:|---:|
{table}

## How
Random normal operands. 10 warm-ups and 20 repetitions (fewer, down to 3, where one takes over 50 ms; 2 and 7 on a CPU). Before
each repetition twice the last cache is overwritten and the device is kept busy until the host has enqueued the work, so a time is
the device's alone. Executions under 20 µs are timed several in a row (the row's note says how many), so all but the first find a
warm cache. Kernel names come from a second run under the profiler. Layers run as in training, over whatever the cache holds; their
kernels, sub-modules and steps must add up to them within the stated tolerance, or the row is marked open and not used.

## Conditions
| | |
|---|---|
{conditions}

SM clock while measuring: {clock}. Rows with throttling: {throttled}.
Where and when: <the machine, its cooling and power cap, the date>.

## Licence and source
{licence}. {source}.

## Limits
* One board of one kind: boards differ by a few per cent, and clocks move with temperature. Repeated on: <boards, their spread>.
* {skipped}
* Isolated kernels: no communication beside them, no allocator traffic, a cold cache before most of them.
* FLOP and bytes are what must be computed and moved once (masked pairs not counted), not what a profiler counted.
* Not to be used for: <anything known>.
"""


def write_card(folder: Path, plan: str) -> Path:
    """Write `DATA_CARD.md` beside the Parquet files of `folder`; write nothing if there are none."""
    files = sorted(folder.glob("*.parquet"))
    path = folder / CARD
    if files:
        sets = [read(file) for file in files]
        rows = [row for one in sets for row in one.rows()]
        path.write_text(card([one.about for one in sets], rows, plan), encoding="utf-8")
    return path


def card(abouts: Sequence[About], rows: Sequence[dict[str, Any]], plan: str) -> str:
    """The text of the card of one device's files (at least one)."""
    first = abouts[0]
    drivers = ", ".join(sorted({one.driver or "not known" for one in abouts}))
    conditions = {
        "GPU": first.gpu,
        "device": first.device,
        "architecture": first.architecture,
        "driver": drivers,
        **first.libraries,
        **first.settings,
    }
    clocks = [row["clock_hz"] for row in rows if row.get("clock_hz")]
    throttling = [row for row in rows if row.get("throttled") is not None]
    reasons = Counter(word for row in throttling if row["throttled"] for word in row["throttled"].split(", "))
    throttled = f"{sum(1 for row in throttling if row['throttled']):,} of {len(throttling):,} rows" if throttling else "not known"
    throttled += "".join(f", {word} {n:,}" for word, n in reasons.most_common())
    span = f"{min(clocks) / 1e6:.0f} to {max(clocks) / 1e6:.0f} MHz, median {median(clocks) / 1e6:.0f}" if clocks else "not known"
    lost = sum(1 for row in rows if row["status"] == "oom")
    return TEXT.format(
        device=first.device or first.gpu,
        rows=len(rows),
        files=len(abouts),
        version=first.version,
        plan=plan,
        table=_table(rows),
        conditions="\n".join(f"| {name} | {value} |" for name, value in conditions.items()),
        clock=span,
        throttled=throttled,
        licence=first.licence or "<licence>",
        source=first.source or "<source>",
        skipped=f"{lost:,} shapes did not fit into memory and have no time." if lost else "Every shape that was tried fitted.",
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["level"], row["op"], row["dtype"], row["mode"]), []).append(row)
    lines = []
    for group, rows_of_group in sorted(groups.items()):
        times = [row["seconds"] for row in rows_of_group if row["seconds"] is not None]
        span = [f"{one * 1e6:,.1f} µs" for one in (min(times), max(times))] if times else ["", ""]
        lines.append(
            f"| {' | '.join(group)} | {len(rows_of_group):,} | {len(rows_of_group) - len(times):,} | {span[0]} | {span[1]} |"
        )
    return "\n".join(lines)
