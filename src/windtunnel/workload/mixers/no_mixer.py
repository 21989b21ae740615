"""No mixer: a layer that is an MLP alone, as hybrid models have them."""

from __future__ import annotations

from windtunnel.spec.model import Model
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.tape import Tape


class NoMixer(LayerMixer):
    words = ""
    published = True
    alone = "-"
    mixes = False

    def write(self, tape: Tape) -> None:
        return None

    def matrices(self, model: Model) -> int:
        return 0

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        return Mixing()


NO_MIXER = NoMixer()
