"""The tape on which a block is written once: forward rows, their backward rows, saved tensors and parameters.

A block appends `Unit`s in forward order. `passes/` turn the list into the forward and backward programs of a micro batch.
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.optimizers import Cut


@dataclass
class Unit:
    """One differentiable step of a block.

    `saved`: bytes per micro batch and GPU, kept from forward to backward; `parameters`: elements on this GPU before
    data-parallel sharding, `expert_parameters` those of them that only the ranks with the same experts share, `quantised`
    those of products in low precision; `core` marks the attention core, which selective recompute runs again; `again`: the
    share of the unit's matrix products that op-level selective recompute runs again. `parts` are the entries of
    `plan.recompute_modules` that run the unit again, `gives[part]` the bytes of `saved` that such a part brings back, `place` the
    sub-module of both. `tensors`: bytes of each tensor of `saved`, if there are several. `cut`: the side of the unit's weight
    (outputs x inputs) that tensor parallelism divides. `replicated`: parameters that every rank of a tensor-parallel group has and
    uses for its own tokens alone, so that their gradients are summed over the group. `frozen`: parameters that are not trained, in
    place of `parameters`, `frozen_quantised` in place of `quantised`. Packed weights (`blocks.packed`) count in `frozen` as so many
    of the weights' width; `resident` are bytes of them that every rank has, however the rest is sharded. `graph`: the entry of
    `runtime.graph_scope` that contains the unit, if neither its module nor its role says it.
    """

    name: str
    role: Role = Role.NONE
    forward: list[Op] = field(default_factory=list)
    backward: list[Op] = field(default_factory=list)
    saved: float = 0.0
    tensors: tuple[float, ...] = ()
    parameters: float = 0.0
    expert_parameters: float = 0.0
    core: bool = False
    again: float = 0.0
    quantised: float = 0.0
    parts: tuple[str, ...] = ()
    gives: dict[str, float] = field(default_factory=dict)
    place: Module = Module.NONE
    cut: Cut = ""
    replicated: float = 0.0
    frozen: float = 0.0
    frozen_quantised: float = 0.0
    resident: float = 0.0
    graph: str = ""

    def mark(self) -> None:
        """Sets the unit's role on its rows that have none."""
        if self.role is not Role.NONE:
            self.forward, self.backward = (
                [op._replace(role=self.role) if op.role is Role.NONE else op for op in rows]
                for rows in (self.forward, self.backward)
            )

    def freeze(self) -> None:
        """Removes what only weight gradients need: their rows, and the input that products keep for them.

        The input's gradient still runs; norms, activations and attention keep the tensors that it needs.
        """
        self.frozen += self.parameters
        self.frozen_quantised += self.quantised
        self.parameters = self.expert_parameters = self.quantised = self.replicated = 0.0
        if any(op.phase is Phase.WGRAD and op.kind in (Kind.GEMM, Kind.GROUPED_GEMM) for op in self.backward):
            self.tensors = self.tensors[1:]  # the input comes first
            self.saved = sum(self.tensors)
        self.backward = without_phase(self.backward, Phase.WGRAD)


def without_phase(rows: list[Op], phase: Phase) -> list[Op]:
    """Rows of a unit without those of `phase`, with the indices of waits renumbered."""
    remaining = [row for row, op in enumerate(rows) if op.phase is not phase]
    place = {row: new for new, row in enumerate(remaining)}
    return [
        op._replace(waits=tuple(place.get(w, -1) for w in op.waits if w < 0 or w in place))
        for op in (rows[row] for row in remaining)
    ]


def join_rows(rows: list[Op], more: list[Op]) -> list[Op]:
    """Rows of a unit and those of another one behind them, with the indices of their waits moved accordingly."""
    base = len(rows)
    return rows + [op._replace(waits=tuple(w + base if w >= 0 else w for w in op.waits)) for op in more]


def with_copies(rows: list[Op], one: bool) -> list[Op]:
    """Rows of a unit with a copy behind each gather and before each reduce-scatter over tp, with the indices of waits renumbered.

    A call moves dimension 0; what is cut along another one is put in order by a copy (PyTorch `_functional_collectives.py`, chunk
    and cat). `one`: a single sequence is gathered, whose parts follow one another already (PyTorch 2.11 on, `_utils.py`).
    """
    after, place = list[Op](), list[int]()
    for op in rows:
        moved = op.comm if op.axis is Axis.TP else Comm.NONE
        copy = Op(f"{op.name} copy", Kind.COPY, op.phase, op.module, op.dtype, bytes=2.0 * op.bytes)
        waits = tuple(place[w] if w >= 0 else w for w in op.waits)
        if moved is Comm.REDUCE_SCATTER:
            after.append(copy)
            waits = (len(after) - 1,) if waits else ()
        after.append(op._replace(waits=waits))
        if moved is Comm.ALL_GATHER and not one:
            after.append(copy if op.blocking else copy._replace(waits=(len(after) - 1,)))
        place.append(len(after) - 1)
    return after


@dataclass
class Tape:
    """Emits units of one module for one GPU of the job; sizes are what that GPU sees.

    `local`: attention has the model's window, or sees keys that an indexer picks; `wide`: products stay in 16 bits whatever the
    precision; `frozen`: nothing in the module is trained.

    `outer` is None for a single sub-module. If two sub-modules read one input and their outputs are summed (a parallel block under
    tensor parallelism), the outer one gathers the input and reduces sum and input gradient for both; the inner one gathers the
    input again for both, in its backward pass.
    """

    job: Job
    module: Module = Module.NONE
    units: list[Unit] = field(default_factory=list)
    local: bool = True
    wide: bool = False
    frozen: bool = False
    outer: bool | None = None

    def __post_init__(self) -> None:
        plan, runtime = self.job.plan, self.job.runtime
        self.frozen = self.frozen or self.job.has_frozen_weights
        self.tp = plan.tp
        self.sp = plan.sequence_parallel and plan.tp > 1
        self.seq = plan.seq // plan.cp
        self.window = self.job.model.seen_keys(self.local)
        self.tokens = plan.micro_batch * self.seq
        self.local_tokens = self.tokens // self.tp if self.sp else self.tokens
        self.width = runtime.compute_width
        self.activation_dtype = DTYPES.index(runtime.precision if runtime.precision in ("fp32", "fp16", "bf16") else "bf16")
        self.linear_dtype = self.activation_dtype if self.wide else DTYPES.index(runtime.precision)
        self.grad_width = DTYPE_BYTES[runtime.gradient_dtype]

    # -- rows -------------------------------------------------------------------------------------------------------

    def gemm(
        self,
        name: str,
        phase: Phase,
        m: int,
        n: int,
        k: int,
        batch: int = 1,
        dtype: int | None = None,
        waits: tuple[int, ...] = (),
        adds: bool = False,
    ) -> Op:
        """Matrix product (m,k)x(k,n); FLOPs 2mnk, bytes of both operands and the result once. `adds`: accumulates into the
        result."""
        dtype = self.linear_dtype if dtype is None else dtype
        width = DTYPE_BYTES[DTYPES[dtype]]
        out = self.grad_width if phase is Phase.WGRAD and self.job.runtime.fused_wgrad else self.width
        accumulate = 2.0 if adds or phase is Phase.WGRAD and self.job.runtime.fused_wgrad else 1.0
        moved = batch * (width * (m * k + k * n) + accumulate * out * m * n)
        return Op(name, Kind.GEMM, phase, self.module, dtype, batch, m, n, k, 1, 2.0 * batch * m * n * k, moved, waits=waits)

    def grouped_gemm(self, name: str, phase: Phase, experts: int, m: int, n: int, k: int) -> Op:
        """One product (m,k)x(k,n) for each local expert in one grouped GEMM; otherwise as `gemm`."""
        runtime = self.job.runtime
        launches = experts if runtime.moe_grouped_gemm != "one" and not runtime.moe_fused_mlp else 1
        return self.gemm(name, phase, m, n, k, experts)._replace(kind=Kind.GROUPED_GEMM, launches=launches)

    def elementwise(
        self,
        name: str,
        phase: Phase,
        elements: float,
        reads: float,
        writes: float,
        launches: int = 1,
        kind: Kind = Kind.ELEMENTWISE,
        m: int = 0,
        n: int = 0,
    ) -> Op:
        """A memory-bound kernel that reads and writes `reads`, `writes` activation-width numbers per element."""
        return Op(
            name,
            kind,
            phase,
            self.module,
            self.activation_dtype,
            1,
            m,
            n,
            0,
            1,
            0.0,
            elements * self.width * (reads + writes),
            launches,
        )

    def comm(
        self,
        name: str,
        phase: Phase,
        call: Comm,
        axis: Axis,
        size: float,
        stream: Stream,
        blocking: bool = True,
        waits: tuple[int, ...] = (),
    ) -> Op:
        """A communication call over `axis`; `size` is the total buffer in bytes."""
        return Op(
            name,
            Kind.COMM,
            phase,
            self.module,
            self.activation_dtype,
            bytes=size,
            comm=call,
            axis=axis,
            stream=stream,
            blocking=blocking,
            waits=waits,
        )

    # -- units ------------------------------------------------------------------------------------------------------

    def add(self, unit: Unit) -> None:
        unit.place, runtime = self.module, self.job.runtime
        if self.tp > 1 and runtime.sequence_copies != "none" and not runtime.overlap_tp:
            one = runtime.sequence_copies == "batched" and self.job.plan.micro_batch == 1
            unit.forward, unit.backward = (with_copies(rows, one) for rows in (unit.forward, unit.backward))
        unit.mark()
        if self.frozen:
            unit.freeze()
        self.units.append(unit)

    def pointwise(
        self,
        name: str,
        elements: float,
        forward: tuple[float, float],
        backward: tuple[float, float],
        saved: float = 0.0,
        launches: tuple[int, int] = (1, 1),
        parameters: float = 0.0,
        replicated: float = 0.0,
        core: bool = False,
        kind: Kind = Kind.ELEMENTWISE,
        m: int = 0,
        n: int = 0,
        role: Role = Role.NONE,
    ) -> None:
        """Memory-bound forward and backward; the pairs are (reads, writes) per element, `saved` in bytes."""
        unit = Unit(name, role, saved=saved, parameters=parameters, replicated=replicated, core=core)
        if launches[0]:
            unit.forward.append(self.elementwise(name, Phase.FORWARD, elements, *forward, launches[0], kind, m, n))
        if launches[1]:
            unit.backward.append(self.elementwise(name + " grad", Phase.DGRAD, elements, *backward, launches[1], kind, m, n))
        self.add(unit)
