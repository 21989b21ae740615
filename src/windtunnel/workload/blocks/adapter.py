"""Low-rank adapters (LoRA) beside frozen linear layers: y + scale B A x, with A of (rank, inputs) and B of (outputs, rank).

The matrices are sharded as in NeMo's ParallelLinearAdapter (megatron/bridge/peft/utils.py). Beside a column-parallel layer, A's
rank and B's outputs are sharded over tp, and A reads the gathered input of the layer. Beside a row-parallel layer, A's inputs and
B's outputs are sharded over tp, and the result is gathered. Adapters compute in 16 bits, also beside fp8 products.
"""

from __future__ import annotations

from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit

COLUMN = {
    Role.QKV: "linear_qkv",
    Role.Q: "linear_qkv",
    Role.Q_UP: "linear_qkv",
    Role.KV_UP: "linear_qkv",
    Role.MLP_UP: "linear_fc1",
}
ROW = {Role.ATTENTION_OUT: "linear_proj", Role.MLP_DOWN: "linear_fc2"}
"""Column- and row-parallel products by role -> the target of `model.lora` that adapts them."""


def adapt(tape: Tape) -> None:
    """Appends an adapter after each unit of the tape that `model.lora` targets."""
    lora = tape.job.model.lora
    if lora is None:
        return
    units, tape.units = tape.units, []
    for unit in units:
        tape.units.append(unit)
        if COLUMN.get(unit.role) in lora.targets:
            product = next(op for op in unit.forward if op.kind is Kind.GEMM)
            _column(tape, unit, product.k, product.n)
        elif ROW.get(unit.role) in lora.targets:
            product = next(op for op in unit.forward if op.kind is Kind.GEMM)
            _row(tape, unit, product.k, product.n)


def _column(tape: Tape, beside: Unit, inputs: int, outputs: int) -> None:
    """(tokens, inputs) -> (tokens, outputs of this rank)."""
    adapter = _Adapter(tape, beside, inputs, outputs, max(1, _rank(tape) // tape.tp), _rank(tape))
    small = tape.tokens * _rank(tape) * tape.width
    adapter.down()
    adapter.call("gather", Phase.FORWARD, Comm.ALL_GATHER, small)
    adapter.up(tape.tokens * outputs)
    adapter.back(tape.tokens * outputs)
    adapter.call("dgrad reduce", Phase.DGRAD, Comm.ALL_REDUCE, small, late=True)
    adapter.input_gradient()
    gathered_bytes = tape.tokens * inputs * tape.width
    adapter.call(
        "input grad scatter" if tape.sp else "input grad reduce",
        Phase.DGRAD,
        Comm.REDUCE_SCATTER if tape.sp else Comm.ALL_REDUCE,
        gathered_bytes,
        late=True,
    )
    adapter.join(tape.local_tokens * inputs)


def _row(tape: Tape, beside: Unit, inputs: int, outputs: int) -> None:
    """(tokens, inputs of this rank) -> (own tokens, outputs)."""
    lora = tape.job.model.lora
    part = outputs // tape.tp
    adapter = _Adapter(tape, beside, inputs, part, _rank(tape), _rank(tape))
    small, output_bytes = tape.tokens * _rank(tape) * tape.width, tape.tokens * outputs * tape.width
    turned = lora is not None and lora.all_to_all and tape.sp
    adapter.down()
    adapter.call("reduce", Phase.FORWARD, Comm.ALL_REDUCE, small)
    adapter.product(Phase.FORWARD, "up", tape.tokens, part, _rank(tape))
    adapter.call(
        "turn" if turned else "gather",
        Phase.FORWARD,
        Comm.ALL_TO_ALL if turned else Comm.ALL_GATHER,
        output_bytes / tape.tp if turned else output_bytes,
    )
    adapter.scale(tape.local_tokens * outputs)
    if turned:
        adapter.call("turn grad", Phase.DGRAD, Comm.ALL_TO_ALL, output_bytes / tape.tp, late=True)
    elif tape.sp:
        adapter.call("gather grad", Phase.DGRAD, Comm.ALL_GATHER, output_bytes, late=True)
    adapter.back(tape.tokens * part)
    adapter.call("dgrad reduce", Phase.DGRAD, Comm.ALL_REDUCE, small, late=True)
    adapter.input_gradient()
    adapter.join(tape.tokens * inputs)


def _rank(tape: Tape) -> int:
    lora = tape.job.model.lora
    return lora.rank if lora else 0


class _Adapter:
    """Rows of one adapter: `narrow` columns of A's product are on this rank, out of `rank`."""

    def __init__(self, tape: Tape, beside: Unit, inputs: int, outputs: int, narrow: int, rank: int) -> None:
        self.tape, self.name = tape, f"{beside.name} adapter"
        self.inputs, self.outputs, self.narrow, self.rank = inputs, outputs, narrow, rank
        self.dropout = tape.job.model.lora is not None and tape.job.model.lora.dropout
        elements = tape.tokens * inputs
        shared = not self.dropout and beside.role is Role.ATTENTION_OUT  # attention keeps its output anyway
        kept = 0.0 if shared else elements * tape.width
        self.unit = Unit(
            self.name,
            parameters=float(narrow * inputs + rank * outputs),
            saved=kept + self.dropout * elements + tape.tokens * rank * tape.width,
        )
        tape.units.append(self.unit)
        self.unit.place = tape.module
        if self.dropout:
            self.unit.forward.append(tape.elementwise(f"{self.name} dropout", Phase.FORWARD, elements, 1, 1.5))

    def down(self) -> None:
        self.product(Phase.FORWARD, "down", self.tape.tokens, self.narrow, self.inputs)

    def up(self, elements: float) -> None:
        self.product(Phase.FORWARD, "up", self.tape.tokens, self.outputs, self.rank)
        self.scale(elements)

    def scale(self, elements: float) -> None:
        """Scale by alpha / rank and add to the frozen layer's output."""
        self.unit.forward += [
            self.tape.elementwise(f"{self.name} scale", Phase.FORWARD, elements, 1, 1),
            self.tape.elementwise(f"{self.name} add", Phase.FORWARD, elements, 2, 1),
        ]

    def back(self, elements: float) -> None:
        """Gradients of B's product, whose output has `elements`."""
        self.unit.backward.append(self.tape.elementwise(f"{self.name} scale grad", Phase.DGRAD, elements, 1, 1))
        self.product(Phase.DGRAD, "up dgrad", self.tape.tokens, self.rank, self.outputs)
        self.product(Phase.WGRAD, "up wgrad", self.outputs, self.rank, self.tape.tokens)

    def input_gradient(self) -> None:
        """Gradients of A's product."""
        self.product(Phase.DGRAD, "down dgrad", self.tape.tokens, self.inputs, self.narrow)
        self.product(Phase.WGRAD, "down wgrad", self.narrow, self.inputs, self.tape.tokens)
        if self.dropout:
            self.unit.backward.append(
                self.tape.elementwise(f"{self.name} dropout grad", Phase.DGRAD, self.tape.tokens * self.inputs, 1.5, 1)
            )

    def join(self, elements: float) -> None:
        """The adapter's input gradient, added to the frozen layer's."""
        self.unit.backward.append(self.tape.elementwise(f"{self.name} grad add", Phase.DGRAD, elements, 2, 1))

    def product(self, phase: Phase, what: str, m: int, n: int, k: int) -> None:
        op = self.tape.gemm(f"{self.name} {what}", phase, m, n, k, dtype=self.tape.activation_dtype)
        (self.unit.forward if phase is Phase.FORWARD else self.unit.backward).append(op)

    def call(self, what: str, phase: Phase, call: Comm, size: float, late: bool = False) -> None:
        if self.tape.tp > 1:
            op: Op = self.tape.comm(f"{self.name} {what}", phase, call, Axis.TP, size, Stream.TP)
            (self.unit.backward if late else self.unit.forward).append(op)
