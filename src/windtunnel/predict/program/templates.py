"""Engine templates: a pass of a block, or of a whole virtual stage, as rows with streams, costs and waits.

Which calls of a program run beside computation.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Bools, Int32s, Int64s
from windtunnel.engine import COPY, ProgramBuilder
from windtunnel.predict.category import Category, categories
from windtunnel.predict.price.calls import CallKey
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.demands import Demand, StepDemands
from windtunnel.predict.program.passes import PassRows, half, host_of_blocks, host_of_pass, in_a_row, interleave_passes
from windtunnel.predict.program.recorded import RecordedPass
from windtunnel.workload import Kind, Stream, Workload
from windtunnel.workload.identity import Role
from windtunnel.workload.schedules import Pass

Blocks = tuple[tuple[int, int], ...]
"""Blocks of the workload in model order, each with its number of repeats."""


class Templates:
    """Builds and caches templates of one workload. Equal virtual stages share templates, whatever stage they are on."""

    def __init__(
        self,
        workload: Workload,
        costs: Costs,
        program: ProgramBuilder,
        rows: list[Int64s | None] | None = None,
        group: Int32s | None = None,
        live: NetworkCalls | None = None,
    ) -> None:
        """`rows`: shared by all template builders of one program; `group`: columns of factors by row; `live`: the calls whose end a
        network engine determines."""
        self.workload, self.costs, self.program = workload, costs, program
        self.live = live
        ops = workload.ops
        self.category = categories(ops)
        self.stream = ops.stream.astype(np.int32)
        self.is_comm = (ops.kind == Kind.COMM).astype(np.uint8)
        self.numbers = np.full((len(ops), 8), -1, np.int32)  # as `ProgramBuilder.add_rows` takes them
        for place, column in enumerate((self.stream, self.category, self.is_comm, ops.sync)):
            self.numbers[:, place] = column
        self.numbers[:, 6] = 0 if group is None else group
        self.times = np.stack([costs.seconds, costs.host], axis=1)
        self.host_speed = workload.job.cluster.node.host_speed
        pairs = [(w + (-1, -1))[:2] for w in workload.waits]
        self.waits = np.array(pairs, np.int32).reshape(-1, 2)
        self.known: dict[tuple[object, ...], int] = {}
        self.kinds_of_update: dict[tuple[object, ...], int] = {}
        self.updates: dict[int, int] = {}  # by stage: the kind of its update
        self.parts: dict[tuple[int, Pass], PassRows] = {}
        self.rows: list[Int64s | None] = [] if rows is None else rows  # by template: rows of the workload, None for others
        self.inline: dict[int, tuple[bool, bool]] = {}  # by template: whether it is on the compute stream, and whether it computes
        self.passes: dict[int, PassRows] = {}  # by template, of those that are passes
        self.within: dict[int, set[CallKey]] = {}  # by template: calls inside, and those beside its computation
        self.beside: dict[int, set[CallKey]] = {}
        self.groups: dict[
            tuple[Blocks, bool], list[Blocks]
        ] = {}  # of virtual stages, forward or not: blocks by bucket of gradients
        self.recorded: dict[tuple[object, ...], RecordedPass] = {}  # passes that calls interrupt, by what they are
        self.calls: dict[tuple[int, float, int], tuple[Demand, CallKey, int]] = {}  # collectives among equal ranks, by their row
        self.gathers: dict[Blocks, tuple[list[int], list[tuple[Demand, float]]]] = {}  # before the first pass of a virtual stage
        self.call_of = costs.call_of
        self.demands = StepDemands.of(workload)
        self.hosts = host_of_blocks(workload)

    def pieces(self, blocks: Blocks, direction: Pass, opens: bool) -> int:
        """A pass through `blocks` in model order; backward runs them in reverse.

        Each block's first row carries the framework's host cost of a layer; the first row of a pass also carries that of a micro
        batch.
        """
        key = (blocks, direction, opens)
        if key not in self.known:
            self.known[key] = self._add(self._pass(blocks, direction, opens))
        return self.known[key]

    def pair(self, ahead: Blocks, back: Blocks) -> int:
        """A forward pass through `ahead` beside a backward pass through `back`, as rows of one template.

        On each stream the row that can start earlier goes first, so calls of one pass run beside computation of the other.
        """
        key = (ahead, back)
        if key not in self.known:
            passes = (self._pass(ahead, Pass.FORWARD, True), self._pass(back, Pass.BACKWARD, True))
            self.known[key] = self._add(interleave_passes(*passes, self.stream, self.costs.seconds))
        return self.known[key]

    def _pass(self, blocks: Blocks, direction: Pass, opens: bool) -> PassRows:
        parts: list[PassRows] = []
        hosts: list[float] = []
        of_block, of_pass = self.hosts[direction], host_of_pass(self.workload.job, direction)
        for index, times in blocks if direction is Pass.FORWARD else reversed(blocks):
            parts += [self._part(index, direction)] * times
            hosts += [of_block[index]] * times
        return in_a_row(parts, hosts, of_pass if opens else 0.0)

    def _part(self, block: int, direction: Pass) -> PassRows:
        """A pass of one block."""
        if (block, direction) not in self.parts:
            part = self.workload.blocks[block]
            rows = part.forward if direction is Pass.FORWARD else part.backward
            piece = self._piece(rows)
            if direction in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT):
                piece = half(self.workload.ops, piece, weight=direction is Pass.WEIGHT_GRADIENT)
            self.parts[block, direction] = piece
        return self.parts[block, direction]

    def _piece(self, rows: range) -> PassRows:
        index = np.arange(rows.start, rows.stop)
        return PassRows(index, self.waits[index], np.ones(len(index), np.bool_), np.zeros(len(index)))

    def optimizer(self, stage: int, after_norm: bool) -> int:
        """Rows of a stage's update, up to the gradient norm or after it."""
        rows, costs = self.workload.optimizer[stage], self.costs
        at = slice(rows.start, rows.stop)
        if stage not in self.updates:  # stages of equal blocks have equal rows
            update = (self.workload.stages[stage], costs.seconds[at].tobytes(), costs.host[at].tobytes())
            self.updates[stage] = self.kinds_of_update.setdefault(update, len(self.kinds_of_update))
        key = ("update", self.updates[stage], after_norm)
        if key not in self.known:
            cut = rows.start + int(np.argmax(self.workload.ops.role[at] == int(Role.GRADIENT_NORM))) + 1
            self.known[key] = self._add(self._piece(range(cut, rows.stop) if after_norm else range(rows.start, cut)))
        return self.known[key]

    def transfer(self, stream: Stream, seconds: float, category: Category, host: float) -> int:
        """A collective among equal ranks: one row on its own stream, with the `host` seconds to launch it."""
        return self._one("transfer", int(stream), seconds, host, int(category), 1)

    def aside(self, stream: Stream, seconds: float, category: Category) -> int:
        """Work outside of the GPU's compute units: by a copy engine, a disk or the CPU."""
        launch = self.workload.job.runtime.host.launch / self.host_speed
        return self._one("aside", int(stream), seconds, launch, int(category), COPY)

    def data(self, seconds: float) -> int:
        """The wait for a batch, outside of the device's streams."""
        return self._one("data", int(Stream.DATA), seconds, 0.0, int(Category.DATA), 0)

    def nothing(self, host: float) -> int:
        """A row that only costs host time."""
        return self._one("nothing", int(Stream.COMPUTE), 0.0, host / self.host_speed, int(Category.MEMORY_BOUND), 0)

    def _one(self, *row: object) -> int:
        if row not in self.known:
            _, stream, seconds, host, category, comm = row
            self.rows.append(None)
            numbers = np.array([[stream, category, comm, 0, -1, -1, 0, -1]], np.int32)
            self.known[row] = number = self.program.add_rows(numbers, np.array([[seconds, host]], np.float64))
            self.inline[number] = stream == Stream.COMPUTE, False
        return self.known[row]

    def _add(self, piece: PassRows) -> int:
        if not len(piece):  # a virtual stage without layers
            return self.nothing(0.0)
        rows, idle = piece.rows, ~piece.live
        numbers, times = self.numbers[rows], self.times[rows]
        if idle.any():
            rows = np.where(idle, -1, rows)
            numbers[idle, 2:4], times[idle] = 0, 0.0
        computes = bool(((numbers[:, 2] == 0) & (times[:, 0] > 0.0)).any())
        times[:, 0 if self.workload.job.runtime.launch_blocking else 1] += piece.host
        numbers[:, 4:6], numbers[:, 7] = piece.waits, self._live(piece)
        self.rows.append(rows)
        number = self.program.add_rows(numbers, times)
        self.passes[number] = piece
        self.inline[number] = True, computes
        return number

    def _live(self, piece: PassRows) -> Int32s | int:
        """Number of the engine's call of each row, -1 for none."""
        if self.live is None:
            return -1
        out = np.full(len(piece), -1, np.int32)
        for place in np.flatnonzero(piece.live & (self.is_comm[piece.rows] > 0)).tolist():
            out[place] = self.live.number(self.call_of[int(piece.rows[place])])
        return out

    def calls_in(self, template: int) -> set[CallKey]:
        """Calls inside a template."""
        if template not in self.within:
            piece = self.passes.get(template)
            rows = () if piece is None else piece.rows[piece.live & (self.is_comm[piece.rows] > 0)].tolist()
            self.within[template] = {self.call_of[row] for row in rows}
        return self.within[template]

    def calls_beside(self, template: int) -> set[CallKey]:
        """Calls inside a template that run beside its computation."""
        if template not in self.beside:
            piece = self.passes[template]
            rows, call = piece.rows, piece.live & (self.is_comm[piece.rows] > 0)
            computes = piece.live & ~call & (self.costs.seconds[rows] > 0.0)
            place, slot = np.nonzero(piece.waits >= 0)
            awaited = piece.waits[place, slot].astype(np.int64)
            overlapped = calls_beside_computation(place, awaited, computes, call, self.stream[rows] == Stream.COMPUTE)
            self.beside[template] = {self.call_of[row] for row in rows[overlapped].tolist()}
        return self.beside[template]

    def on_compute_stream(self, templates: Int32s) -> tuple[Bools, Bools]:
        """[n] for each template (-1: a meeting): whether it is on the compute stream, and whether it computes."""
        numbers, place = np.unique(templates, return_inverse=True)
        flags = np.array([self.inline.get(number, (False, False)) for number in numbers.tolist()], np.bool_).reshape(-1, 2)
        return flags[place, 0], flags[place, 1]


CHAIN = 3
"""Longest chain of calls that wait for each other, such as a reduce-scatter and the all-reduce between replicas."""


def calls_beside_computation(place: Int64s, awaited: Int64s, computes: Bools, calls: Bools, inline: Bools) -> Int64s:
    """Those of n tasks in program order that are calls which may run beside computation.

    Task `place[i]` waits for the earlier task `awaited[i]`. `computes` [n]: takes time on the compute stream. `inline` [n]: is on
    that stream, whose tasks run in order. A call runs between the end of the last task that it waits for and the start of the
    first task on the compute stream that waits for it; it runs beside the computation between these two.
    """
    n, aside = len(calls), calls & ~inline
    if not aside.any():
        return np.zeros(0, np.int64)
    task = np.arange(n)
    after = np.where(inline, task, -1)  # for each task: the last one on the compute stream that has ended when it begins
    until = np.where(inline, task, n)  # and the first one that begins only after its end
    call_waits, awaited_calls = ~inline[place], ~inline[awaited]
    back, ahead = (place[call_waits], awaited[call_waits]), (place[awaited_calls], awaited[awaited_calls])
    for _ in range(CHAIN if (call_waits & awaited_calls).any() else 1):
        np.maximum.at(after, back[0], after[back[1]])
        np.minimum.at(until, ahead[1], until[ahead[0]])
    computing_before = np.concatenate([[0], np.cumsum(computes)])  # number of computing tasks before each place
    return np.flatnonzero(aside & (computing_before[until] > computing_before[after + 1]))
