"""Low-rank adapters (LoRA) beside frozen linear layers: y + scale B A x, with A of (rank, inputs) and B of (outputs, rank).

The matrices are sharded as in NeMo's ParallelLinearAdapter (megatron/bridge/peft/utils.py). Beside a column-parallel layer, A's
rank and B's outputs are sharded over tp, and A reads the gathered input of the layer. Beside a row-parallel layer, A's inputs and
B's outputs are sharded over tp, and the result is gathered. Adapters compute in 16 bits, also beside fp8 products.

PEFT (peft/tuners/lora) adapts linear modules, which are smaller than those products: `lora.separate`, and each expert's projections
where `lora.experts` says that they are modules.
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


ALONE = {Role.Q_DOWN: "linear_qkv", Role.KV_DOWN: "linear_qkv"}
"""Further products that PEFT adapts with the query, key and value projections of latent attention."""


def adapted_units(tape: Tape) -> tuple[Unit, ...]:
    """The units of the tape that `model.lora` targets."""
    return tuple(unit for unit in tape.units if _target(tape, unit) is not None)


def adapt(tape: Tape) -> None:
    """Appends adapters after each unit of the tape that `model.lora` targets."""
    lora = tape.job.model.lora
    if lora is None:
        return
    units, tape.units = tape.units, []
    for unit in units:
        tape.units.append(unit)
        if _target(tape, unit) is None:
            continue
        product = next(op for op in unit.forward if op.kind in (Kind.GEMM, Kind.GROUPED_GEMM))
        if product.kind is Kind.GROUPED_GEMM:
            wide = unit.role is Role.EXPERT_UP and tape.job.model.gated
            for place, width in enumerate(_halves(product.n) if wide and lora.separate else (product.n,)):
                _expert(tape, unit, product, width, place > 0)
        elif unit.role in ROW:
            _row(tape, unit, product.k, product.n)
        else:
            for place, width in enumerate(_parts(tape, unit, product.n)):
                _column(tape, unit, product.k, width, place > 0)


def _target(tape: Tape, unit: Unit) -> str | None:
    """The target of `model.lora` that adapts the unit; None if it is not targeted."""
    lora = tape.job.model.lora
    if lora is None:
        return None
    target = COLUMN.get(unit.role) or ROW.get(unit.role) or (ALONE.get(unit.role) if lora.separate else None)
    if target is None and lora.experts == "linear" and any(op.kind is Kind.GROUPED_GEMM for op in unit.forward):
        target = "linear_fc1" if unit.role is Role.EXPERT_UP else "linear_fc2"
    return target if target in lora.targets else None


def _parts(tape: Tape, unit: Unit, outputs: int) -> tuple[int, ...]:
    """Outputs of each adapter beside a column-parallel product of `outputs`."""
    model = tape.job.model
    if model.lora is None or not model.lora.separate:
        return (outputs,)
    keys = model.groups * model.dim_per_head // tape.tp
    if unit.role is Role.QKV and outputs > 2 * keys:
        return (outputs - 2 * keys, keys, keys)
    return _halves(outputs) if unit.role is Role.MLP_UP and model.gated else (outputs,)


def _halves(outputs: int) -> tuple[int, int]:
    return outputs // 2, outputs - outputs // 2


def _expert(tape: Tape, beside: Unit, product: Op, outputs: int, shares: bool) -> None:
    """The same beside each local expert's own product, in grouped products as the experts' are."""
    adapter = _Adapter(tape, beside, product.k, outputs, _rank(tape), _rank(tape), shares, product)
    adapter.down()
    adapter.up(adapter.rows * outputs)
    adapter.back(adapter.rows * outputs)
    adapter.input_gradient()
    adapter.join(adapter.rows * product.k)


def _column(tape: Tape, beside: Unit, inputs: int, outputs: int, shares: bool = False) -> None:
    """(tokens, inputs) -> (tokens, outputs of this rank); `shares`: another adapter keeps the same input."""
    adapter = _Adapter(tape, beside, inputs, outputs, max(1, _rank(tape) // tape.tp), _rank(tape), shares)
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
    """Rows of one adapter: `narrow` columns of A's product are on this rank, out of `rank`. `each`: the grouped product of experts
    beside which each expert has such an adapter; `rows`: tokens of all of them."""

    def __init__(
        self,
        tape: Tape,
        beside: Unit,
        inputs: int,
        outputs: int,
        narrow: int,
        rank: int,
        shares: bool = False,
        each: Op | None = None,
    ) -> None:
        lora = tape.job.model.lora
        self.tape, self.name, self.each = tape, f"{beside.name} adapter", each
        self.inputs, self.outputs, self.narrow, self.rank = inputs, outputs, narrow, rank
        self.dropout = lora is not None and lora.dropout
        self.copied = lora is not None and lora.base in ("nf4", "fp4")
        self.tokens, self.count = (each.m, each.batch) if each is not None else (tape.tokens, 1)
        self.rows = self.tokens * self.count
        elements = self.rows * inputs
        shared = not self.dropout and (shares or beside.role is Role.ATTENTION_OUT)  # attention keeps its output anyway
        kept = 0.0 if shared else elements * tape.width
        weights = float(self.count * (narrow * inputs + rank * outputs))
        self.unit = Unit(
            self.name,
            parameters=weights,
            expert_parameters=weights if each is not None else 0.0,
            saved=kept + self.dropout * elements + self.rows * rank * tape.width,
        )
        tape.units.append(self.unit)
        self.unit.place = tape.module
        if self.dropout:
            self.unit.forward.append(self._pass_over("dropout", Phase.FORWARD, elements, 1, 1.5))

    def down(self) -> None:
        self.product(Phase.FORWARD, "down", self.tokens, self.narrow, self.inputs)

    def up(self, elements: float) -> None:
        self.product(Phase.FORWARD, "up", self.tokens, self.outputs, self.rank)
        self.scale(elements)

    def scale(self, elements: float) -> None:
        """Scale by alpha / rank and add to the frozen layer's output; PEFT copies that of a 4-bit layer first."""
        if self.copied:
            self.unit.forward.append(self._pass_over("copy", Phase.FORWARD, elements, 1, 1))
        self.unit.forward += [
            self._pass_over("scale", Phase.FORWARD, elements, 1, 1),
            self._pass_over("add", Phase.FORWARD, elements, 2, 1),
        ]

    def back(self, elements: float) -> None:
        """Gradients of B's product, whose output has `elements`."""
        self.unit.backward.append(self._pass_over("scale grad", Phase.DGRAD, elements, 1, 1))
        self.product(Phase.DGRAD, "up dgrad", self.tokens, self.rank, self.outputs)
        self.product(Phase.WGRAD, "up wgrad", self.outputs, self.rank, self.tokens)

    def input_gradient(self) -> None:
        """Gradients of A's product."""
        self.product(Phase.DGRAD, "down dgrad", self.tokens, self.inputs, self.narrow)
        self.product(Phase.WGRAD, "down wgrad", self.narrow, self.inputs, self.tokens)
        if self.dropout:
            self.unit.backward.append(self._pass_over("dropout grad", Phase.DGRAD, self.rows * self.inputs, 1.5, 1))

    def join(self, elements: float) -> None:
        """The adapter's input gradient, added to the frozen layer's."""
        self.unit.backward.append(self._pass_over("grad add", Phase.DGRAD, elements, 2, 1))

    def product(self, phase: Phase, what: str, m: int, n: int, k: int) -> None:
        name, dtype = f"{self.name} {what}", self.tape.activation_dtype
        if self.each is None:
            op = self.tape.gemm(name, phase, m, n, k, dtype=dtype)
        else:
            op = self.tape.grouped_gemm(name, phase, self.count, m, n, k)._replace(dtype=dtype)
        (self.unit.forward if phase is Phase.FORWARD else self.unit.backward).append(op)

    def _pass_over(self, what: str, phase: Phase, elements: float, reads: float, writes: float) -> Op:
        """A memory-bound kernel, once for each expert whose products are launched one by one."""
        launches = self.count if self.each is not None and self.tape.job.runtime.moe_grouped_gemm != "one" else 1
        return self.tape.elementwise(f"{self.name} {what}", phase, elements, reads, writes, launches)

    def call(self, what: str, phase: Phase, call: Comm, size: float, late: bool = False) -> None:
        if self.tape.tp > 1:
            op: Op = self.tape.comm(f"{self.name} {what}", phase, call, Axis.TP, size, Stream.TP)
            (self.unit.backward if late else self.unit.forward).append(op)
