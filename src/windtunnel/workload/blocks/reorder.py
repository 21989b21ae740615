"""Tokens in the experts' order and back by torch's own operators, as torchtitan does it.

torchtitan 176498cd (November 2025): `models/moe/moe.py` MoE.forward, `models/moe/utils.py` _permute and _unpermute, and autograd's
formulas for them (torch `derivatives.yaml`). Numbers are counted as reads and writes of the activations' width; an atomic addition
is a read and a write. All of it is eager, also where the model is compiled: experts are outside of the compiled parts.
"""

from __future__ import annotations

from windtunnel.workload.ops import Kind, Op, Phase
from windtunnel.workload.tape import Tape, Unit


def gather(tape: Tape, copies: float, tokens: float) -> None:
    """`tokens` numbers -> `copies`, in the order of experts: torch.gather. Backward adds into zeros by atomics."""
    _add(tape, "permute", (2.0 * copies, 3), (tokens + 3.0 * copies, 2))


def pad(tape: Tape, elements: float) -> None:
    """A copy with a row of zeros behind it, then an indexed copy in which each expert's tokens begin at a multiple of the grouped
    product's alignment. Backward sorts the indices and adds into zeros."""
    _add(tape, "pad", (4.0 * elements, 4), (4.0 * elements, 5))


def unpad(tape: Tape, elements: float) -> None:
    """Rows of tokens out of the padded ones: an indexed write, and an indexed read backward."""
    _add(tape, "unpad", (2.0 * elements, 2), (2.0 * elements, 1))


def score(tape: Tape, copies: float) -> None:
    """Outputs times the router's weights: cast to fp32, product, cast back. Backward: the casts, the product with the weights, and
    the product with the outputs that is summed over each token."""
    wide = 4.0 / tape.width
    forward = (1.0 + wide) + 2.0 * wide + (wide + 1.0)
    backward = (1.0 + wide) + 2.0 * wide + 3.0 * wide + wide + (wide + 1.0)
    _add(tape, "score", (forward * copies, 3), (backward * copies, 5))


def scatter_add(tape: Tape, copies: float, tokens: float) -> None:
    """Adds `copies` to a copy of the shared experts' output by atomics; backward gathers."""
    _add(tape, "unpermute", (2.0 * tokens + 3.0 * copies, 2), (2.0 * copies, 1))


def _add(tape: Tape, name: str, forward: tuple[float, int], backward: tuple[float, int]) -> None:
    """A unit of copies: (numbers read and written, kernels) of each pass."""
    unit = Unit(name)
    for rows, what, phase, (elements, kernels) in (
        (unit.forward, name, Phase.FORWARD, forward),
        (unit.backward, f"{name} grad", Phase.DGRAD, backward),
    ):
        moved = elements * tape.width
        rows.append(Op(what, Kind.COPY, phase, tape.module, tape.activation_dtype, bytes=moved, launches=kernels))
    tape.add(unit)
