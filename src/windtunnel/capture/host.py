"""What a framework's host costs: its own step run without a GPU, as the constants that predictions read. What the host does in a
captured step, by part: a layer forward and backward, an update, and what lies between. What `profile host` shows: what the host
does by part, and the constants that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.options import asks
from windtunnel.base.units import show_time
from windtunnel.capture.options import HostOptions
from windtunnel.capture.run import capture
from windtunnel.records.capture_file import STEP, CapturedRank, EntryKind, captured_files, read_captured, steps_of
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec.loading.files import toml_lines
from windtunnel.spec.loading.load import load_cluster, load_runtime

_LAYER = re.compile(r"(?P<before>(?:[^.\d][^.]*\.)*)(?P<number>\d+)(?:\.|$)")
_FEWEST = 3
"""Layers from which on the time between two of them is a layer's."""
_CHUNK = 64
PARTS = ("seconds", "kernels", "calls")


@dataclass(frozen=True)
class HostPart:
    """A part of a step: seconds of Python, autograd and dispatcher, and the kernels and calls that they launch."""

    seconds: float
    kernels: float
    calls: float


@dataclass(frozen=True)
class HostTimes:
    """The host's part of a step of `layers` layers and `passes` micro batches, without what the recorder adds.

    `forward`, `backward`: of a layer, with the hooks around it; `rest`: of a micro batch besides; `update`: from the end of the
    last backward pass to the next forward pass. `call`: seconds of a call in `torch.distributed`, before NCCL; they are part of the
    others. Nothing holds what the driver and NCCL take. `notes`: what was stood in for, whose own host is not there.
    """

    layers: int
    passes: int
    forward: HostPart
    backward: HostPart
    rest: HostPart
    update: HostPart
    call: float
    processor: str
    torch: str
    notes: tuple[str, ...] = ()


def host_times(rank: CapturedRank) -> HostTimes:
    """The parts of a captured rank's step, by the shortest of all equal steps but the first; of layers the median.

    SpecError where the steps are too few, or where no modules are numbered as layers are, and for files of older versions.
    """
    added = rank.about.get("host")
    if added is None:
        raise SpecError("CAPTURED", "a capture of an older version", "one that knows what its recorder takes", "Capture it again.")
    windows = _equal_steps(rank)
    last = rank.entries[windows[-1]]
    forward, layers = _layers(rank, last)
    backward = _backward_layers(last, forward)
    in_backward = np.flatnonzero(last["backward"] > 0)
    if layers < _FEWEST or not len(in_backward):
        raise SpecError("CAPTURED", f"{layers} layers", f"{_FEWEST} or more modules with numbers, such as layers.0", "Take more.")
    parts = _Parts(rank, windows, float(added["operator_s"]))
    hooks = _modules_of_a_layer(rank) * float(added["module_s"])
    ahead = parts.median_of(list(_periods(forward, 1, layers)), hooks)
    back = parts.median_of(list(_periods(backward, -1, layers)))
    marks = (last["kind"] == EntryKind.MARK) & np.array([rank.texts[name] == STEP for name in last["name"].tolist()])
    begin, end = int(np.argmax(marks)), int(in_backward[-1]) + 1
    passes = max(1, int(np.count_nonzero(np.diff(_visits(forward)[1]) < 0)) + 1)
    update = parts.sum_of((0, begin), (end, len(last)))
    between = parts.sum_of((begin, end))
    rest = [max(0.0, getattr(between, name) / passes - layers * (getattr(ahead, name) + getattr(back, name))) for name in PARTS]
    rest[0] = max(0.0, rest[0] - layers * hooks)
    return HostTimes(
        layers, passes, ahead, back, HostPart(*rest), update, float(added["call_s"]), str(added["processor"]),
        str(rank.about["torch"]), tuple(map(str, rank.about["notes"])),
    )  # fmt: skip


def _equal_steps(rank: CapturedRank) -> list[slice]:
    """Steps that do what the last one does, without the first."""
    windows = steps_of(rank)
    last = rank.entries[windows[-1]]
    kept = []
    for window in windows[1:]:
        other = rank.entries[window]
        if len(other) == len(last) and all((other[name] == last[name]).all() for name in ("name", "kind", "backward")):
            kept.append(window)
    if len(kept) < 2:
        raise SpecError("CAPTURED", f"{len(windows)} steps", "several that are equal", "Capture more: --steps 12.")
    return kept


def _layers(rank: CapturedRank, entries: npt.NDArray[Any]) -> tuple[Int64s, int]:
    """[E] number of the layer that runs each entry of a forward pass, -1 none; and how many there are. Layers are the outermost
    numbered modules, of those lists the longest."""
    found = {number: match for number, text in enumerate(rank.texts) if (match := _LAYER.match(text)) is not None}
    lists: dict[str, set[int]] = {}
    for number in np.unique(entries["module"][entries["backward"] == 0]).tolist():
        if number in found:
            lists.setdefault(found[number]["before"], set()).add(int(found[number]["number"]))
    if not lists:
        return np.full(len(entries), -1, np.int64), 0
    longest = max(lists, key=lambda before: len(lists[before]))
    places = {layer: place for place, layer in enumerate(sorted(lists[longest]))}
    known = {number: places.get(int(match["number"]), -1) for number, match in found.items() if match["before"] == longest}
    forward = [known.get(module, -1) for module in entries["module"].tolist()]
    return np.where(entries["backward"] == 0, np.array(forward, np.int64), -1), len(places)


def _modules_of_a_layer(rank: CapturedRank) -> float:
    """Modules that a layer calls, itself included."""
    calls: dict[str, int] = {}
    own: dict[str, int] = {}
    for path, count in rank.about.get("module_calls", {}).items():
        match = _LAYER.match(path)
        if match is not None:
            calls[match[0].rstrip(".")] = calls.get(match[0].rstrip("."), 0) + int(count)
            if match.end() == len(path):
                own[path] = int(count)
    return float(np.median([calls[path] / count for path, count in own.items()])) if own else 0.0


def _backward_layers(entries: npt.NDArray[Any], forward: Int64s) -> Int64s:
    """[E] number of the layer whose gradient each entry is part of, by the nodes that the layer's forward pass made."""
    nodes: dict[int, int] = {}
    for layer, node in zip(forward.tolist(), entries["sequence"].tolist(), strict=True):
        if layer >= 0 and node >= 0:
            nodes.setdefault(node, layer)
    layers = [nodes.get(node, -1) for node in entries["sequence"].tolist()]
    return np.where(entries["backward"] > 0, np.array(layers, np.int64), -1)


def _visits(layers: Int64s) -> tuple[Int64s, Int64s]:
    """Entries at which another layer begins, and its number."""
    places = np.flatnonzero(layers >= 0)
    changed = np.append(True, np.diff(layers[places]) != 0) if len(places) else np.zeros(0, np.bool_)
    return places[changed], layers[places[changed]]


def _periods(layers: Int64s, step: int, count: int) -> Iterator[tuple[int, int]]:
    """Entries from the begin of a layer to that of the next one; not those of a pass's first layer, where there are others."""
    begins, numbers = _visits(layers)
    first = 0 if step > 0 else count - 1
    for begin, end, layer, after in zip(begins[:-1].tolist(), begins[1:].tolist(), numbers[:-1], numbers[1:], strict=True):
        if after - layer == step and layer != first:
            yield begin, end


class _Parts:
    """Sums over entries of a step. Seconds of `_CHUNK` entries are those of the step in which they were shortest."""

    def __init__(self, rank: CapturedRank, windows: list[slice], added: float) -> None:
        entries = rank.entries[windows[-1]]
        operators = entries["kind"] == EntryKind.OPERATOR
        steps = np.stack([rank.entries[window]["host"] * 1e-9 for window in windows])
        begins = np.arange(0, len(entries), _CHUNK)
        shortest = np.argmin(np.add.reduceat(steps, begins, axis=1), axis=0)
        seconds = steps[np.repeat(shortest, _CHUNK)[: len(entries)], np.arange(len(entries))] - added * operators
        counted = operators | (entries["kind"] == EntryKind.COPY), entries["kind"] == EntryKind.CALL
        self._sums = [np.concatenate([[0.0], np.cumsum(of, dtype=np.float64)]) for of in (seconds, *counted)]

    def sum_of(self, *ranges: tuple[int, int]) -> HostPart:
        """Of the entries in all ranges."""
        seconds, kernels, calls = (sum(float(of[end] - of[begin]) for begin, end in ranges) for of in self._sums)
        return HostPart(seconds, kernels, calls)

    def median_of(self, ranges: list[tuple[int, int]], without: float = 0.0) -> HostPart:
        """Of one of the ranges, less `without` seconds. SpecError where there is none."""
        if not ranges:
            raise SpecError("CAPTURED", "layers that do not follow one another", "a step of layers one after the other")
        parts = [self.sum_of(part) for part in ranges]
        seconds, kernels, calls = (float(np.median([getattr(part, name) for part in parts])) for name in PARTS)
        return HostPart(max(0.0, seconds - without), kernels, calls)


FRAMEWORKS = {"fsdp2": "torchtitan", "fsdp": "fsdp", "huggingface": "huggingface", "deepspeed": "deepspeed"}
"""Preset -> the framework of the catalogue whose host it is."""
DRIVER = 2.5e-6
"""Seconds of a launch in the driver, as in a capture's own replay (`formats/traces/captured.py`)."""


@dataclass(frozen=True)
class FrameworkHost:
    """The host of a framework. `times`: of the step as it was run; `whole`: of the same without sharded parameters, for a preset.

    `launch`, `collective`: seconds of the framework's entry in the catalogue, which stay; what is measured beyond them is the
    layer's. `host_speed`: of the machine that measured.
    """

    what: str
    framework: str
    times: HostTimes
    whole: HostTimes | None
    launch: float
    collective: float
    host_speed: float

    @property
    def constants(self) -> dict[str, float]:
        """Seconds of `runtime.host` at a host_speed of 1. Without a run of whole parameters, `layer` holds what sharding adds."""
        layer = self._of_pass(self.times)
        plain = layer if self.whole is None else self._of_pass(self.whole)
        seconds = {
            "launch": self.launch, "layer": plain, "sharded": max(0.0, layer - plain),
            "micro_batch": self._beyond(self.times.rest) / 2.0, "step": self._beyond(self.times.update),
            "collective": max(self.collective, self.times.call * self.host_speed),
        }  # fmt: skip
        return {name: float(f"{value:.3g}") for name, value in seconds.items()}

    def _of_pass(self, times: HostTimes) -> float:
        """Of a layer and pass, the mean of both."""
        return (self._beyond(times.forward) + self._beyond(times.backward)) / 2.0

    def _beyond(self, part: HostPart) -> float:
        """Seconds that launches and calls, which are priced apart, do not explain."""
        seconds = (part.seconds - self.times.call * part.calls) * self.host_speed
        return max(0.0, seconds - (self.launch - DRIVER) * part.kernels)

    @property
    def source(self) -> str:
        """Where the constants are from."""
        ahead, back = self.times.forward, self.times.backward
        speed = f"with a host_speed of {self.host_speed:g}" if self.host_speed != 1.0 else "taken as a host_speed of 1"
        return (
            f"measured by `windtunnel profile host {self.what}` with PyTorch {self.times.torch} on {self.times.processor}, "
            f"{speed}: a layer takes {1e3 * ahead.seconds:.2f} ms forward for {ahead.kernels:.0f} kernels and "
            f"{1e3 * back.seconds:.2f} ms backward for {back.kernels:.0f}, and the driver {1e6 * DRIVER:g} us a launch; costs of a "
            f"launch and a call are those of {self.framework} in the catalogue" + "".join(f"; {note}" for note in self.times.notes)
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON: stable keys, SI units."""
        return {
            "schema": "windtunnel.host/1", "what": self.what, "framework": self.framework, "host_speed": self.host_speed,
            "measured": asdict(self.times), "whole": None if self.whole is None else asdict(self.whole), "host": self.constants,
            "source": self.source,
        }  # fmt: skip

    def write(self, path: str | Path) -> None:
        """A file for `--set runtime.host=FILE`. FileError if it cannot be written."""
        try:
            Path(path).write_text("\n".join(toml_lines({**self.constants, "source": self.source})) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


@asks(HostOptions)
def profile_host(asked: HostOptions) -> FrameworkHost:
    """Host seconds of a framework's step: from a preset, a script, or what `capture` wrote of one, on the capture's device.

    Kernels cost nothing there; what the device adds is measured and taken off. A preset runs twice, with whole and with sharded
    parameters. Needs PyTorch's build for CPUs. SpecError for a step without numbered layers, EngineError for a script that raises.
    """
    what = list(asked.what)
    preset = FRAMEWORKS.get(what[0]) if len(what) == 1 else None
    framework = asked.framework or preset or "torchtitan"
    known = load_runtime(framework).host
    files = captured_files(what) if preset is None else []
    whole = None
    if files:
        times = host_times(read_captured(files[0]))
    elif preset is not None:
        command = ["torchrun", "-m", "windtunnel.capture.presets", what[0]]
        times, whole = _run(command, asked), _run([*command, "--whole"], asked)
    elif len(what) == 1 and not what[0].endswith(".py"):
        raise UnknownName("WHAT", what[0], (*FRAMEWORKS, "a folder of `windtunnel capture`", "a command after --"))
    else:
        times = _run(what, asked)
    found = FrameworkHost(" ".join(what), framework, times, whole, known.launch, known.collective, asked.host_speed)
    if asked.out is not None:
        found.write(asked.out)
    return found


def _run(command: list[str], asked: HostOptions) -> HostTimes:
    """The times of rank 0."""
    if not command:
        raise SpecError("WHAT", "nothing", ", ".join(FRAMEWORKS), "Type: windtunnel profile host fsdp2")
    cluster = load_cluster(asked.cluster, [f"gpus={asked.gpus}"])
    with TemporaryDirectory() as folder:
        done = capture(command, cluster, Path(folder), steps=asked.steps, ranks=[0], progress=asked.progress)
        return host_times(done.ranks[0])


def host_sheet(found: FrameworkHost) -> Sheet:
    """What `profile host` shows."""
    times, constants = found.times, found.constants
    headline = Sentence(
        "A layer takes the host {forward} forward and {backward} backward, without launches in the driver",
        forward=show_time(times.forward.seconds), backward=show_time(times.backward.seconds),
    )  # fmt: skip
    rows = tuple((Cell(f"runtime.host.{name}"), Cell(show_time(value), value)) for name, value in constants.items())
    parts = [("as it was run", times), *([] if found.whole is None else [("parameters whole", found.whole)])]
    return Sheet(
        "The host of a framework", headline,
        (
            Figure("forward_s", "a layer, forward", times.forward.seconds, "s", None, show_time(times.forward.seconds)),
            Figure("backward_s", "a layer, backward", times.backward.seconds, "s", None, show_time(times.backward.seconds)),
            Figure("update_s", "an update", times.update.seconds, "s", None, show_time(times.update.seconds)),
            Figure("call_s", "a call before NCCL", times.call, "s", None, show_time(times.call)),
        ),
        (
            Section("What the host does", tuple(_parts(name, of) for name, of in parts)),
            Section("What a prediction reads", (
                Table("constants", (Column("field"), Column("seconds", True)), rows), Lines((quote(found.source),), mood="soft"),
            )),
        ),
        (headline,), titled=True,
    )  # fmt: skip


def _parts(name: str, times: HostTimes) -> Table:
    named = (
        ("a layer, forward", times.forward), ("a layer, backward", times.backward),
        ("a micro batch besides its layers", times.rest), ("an update and what is around it", times.update),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(Sentence(said)), Cell(show_time(part.seconds), part.seconds), Cell(f"{part.kernels:.0f}", part.kernels),
            Cell(f"{part.calls:.0f}", part.calls),
        )
        for said, part in named
    )  # fmt: skip
    heads = (Column(name, wraps=True), Column("seconds", True), Column("kernels", True), Column("calls", True))
    return Table(f"parts of {name}", heads, rows, Sentence("Of {layers} layers, {how}", layers=times.layers, how=Sentence(name)))
