"""Faults of the fabric and what they cost a step, in a sentence."""

from __future__ import annotations

from windtunnel.predict.prediction import FaultCost
from windtunnel.sheet import numbers as say

_WORDS = {"losses": "packets lost", "timeouts": "timeouts", "retransmits": "packets sent again"}


def faults_sentence(faults: FaultCost) -> str:
    """The cost, the step without them, and what packets did."""
    counted = ", ".join(f"{number:,.0f} {_WORDS[name]}" for name, number in faults.counts.items() if name in _WORDS and number)
    what = f"{len(faults.stated)} faults" if len(faults.stated) > 1 else f"the fault {faults.stated[0]}"
    cost = f"{what} of the fabric: {say.seconds(abs(faults.cost_s))} {'more' if faults.cost_s >= 0 else 'less'} a step"
    sentence = f"{cost} than the {say.seconds(faults.whole_step_time_s)} without"
    return sentence[0].upper() + sentence[1:] + (f" ({counted})." if counted else ".")
