"""Double-gated short convolution (LFM2, arXiv:2511.23404; transformers' Lfm2ShortConv): a product to two gates and a value, a
causal depthwise convolution of the first gate times the value, the second gate times that, and the output projection. Channels are
cut over tp, and over cp for the convolution.
"""

from __future__ import annotations

from windtunnel.base.errors import PlanError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.blocks.scan import convolution, turn
from windtunnel.workload.identity import Module
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.tape import Tape


class GatedConvolution(LayerMixer):
    words = "short convolution"
    letter = "S"
    module = Module.SHORT_CONVOLUTION

    def check(self, model: Model, plan: Plan) -> None:
        if model.hidden % (plan.tp * plan.cp):
            ranks = f"tp x cp, a divisor of model.hidden = {model.hidden}: each rank convolves whole channels"
            raise PlanError("plan.tp", plan.tp, ranks)

    def write(self, tape: Tape) -> None:
        hidden, channels = tape.job.model.hidden, tape.job.model.hidden // tape.tp
        column(tape, "in projection", hidden, 3 * hidden, False, source="norm")
        tape.units[-1].gives["layernorm"] = tape.units[-1].saved
        turn(tape, "channels gather", 3 * channels)
        elements = float(tape.tokens * channels)
        tape.pointwise("input gate", elements, (2, 1), (3, 2), saved=2 * elements * tape.width)
        convolution(tape, channels, False)
        tape.pointwise("output gate", elements, (2, 1), (3, 2), saved=2 * elements * tape.width)
        turn(tape, "channels scatter", channels)
        row(tape, "out projection", hidden, hidden)

    def reads_norm_once(self, model: Model) -> bool:
        return True

    def matrices(self, model: Model) -> int:
        return 4 * model.hidden**2

    def small_parameters(self, model: Model) -> int:
        return model.hidden * model.conv_width

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        """A request keeps the convolution's last inputs, in 16 bits."""
        return Mixing(state=2.0 * model.conv_width * model.hidden / tp)


GATED_CONVOLUTION = GatedConvolution()
