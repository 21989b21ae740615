"""`python -m tests.faults.causes`: all cases, or some of them.

--only TEXT: cases with the text in their names. --short: a few, in CI. --write: puts the counts into docs/faults.json and
docs/faults.md. --load N: processes that compute beside the clean runs. --kind ends-kept: the ends, of a job that a driver keeps.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from tests.faults.causes import drive
from tests.faults.causes.listed import CAUSES, CLEAN, COUNT_CLEAN, ENDS, ENDS_KEPT, End
from tests.faults.causes.memory_group import can_limit
from tests.faults.outcome import Outcome
from tests.faults.publish import publish
from tests.faults.tally import tally

SHORT_CAUSES = ("data, one rank", "Python between steps, one rank")
SHORT_ENDS = ("an exception", "another operation")
SHORT_KEPT = ("an exception", "a segfault", "a rank returns early", "another operation", "another type of numbers")
KINDS = ("causes", "ends", "ends-kept", "causes-clean")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--sighted", action="store_true", help="without the cases that nobody looked at while the rules were made")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--load", type=int, default=2)
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else [kind for kind in KINDS if not (options.short and kind == "causes-clean")]
    results: dict[str, list[Outcome]] = {}
    for kind in kinds:
        for name, run in _runs(kind, options):
            try:
                outcome = run()
            except RuntimeError as error:
                outcome = Outcome(False, (), f"{name}: the run failed: {error}")
            results.setdefault(kind, []).append(outcome)
            sign = "wrong" if outcome.wrong or outcome.right is False else "right"
            print(f"{sign}  {name}  |  {outcome.said}  {' '.join(outcome.wrong)}", flush=True)
    for kind, outcomes in results.items():
        right, wrong = sum(one.right is True for one in outcomes), sum(bool(one.wrong) for one in outcomes)
        print(f"{kind}: {right} of {len(outcomes)} right, {wrong} named what is not wrong")
    if options.write:
        load = (os.getloadavg()[0],) * 2
        publish({kind: tally([replace(one, seconds=float("nan")) for one in outcomes], load) for kind, outcomes in results.items()})
    return int(any(one.right is False or one.wrong for outcomes in results.values() for one in outcomes)) if options.short else 0


def _runs(kind: str, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    if kind == "causes":
        for case in CAUSES:
            chosen = (
                case.name in SHORT_CAUSES if options.short else options.only in case.name and not (case.blind and options.sighted)
            )
            if chosen and (not case.needs or find_spec(case.needs)):
                yield case.name, partial(drive.cause, case)
    if kind == "ends":
        for one in _able(ENDS):
            if one.name in SHORT_ENDS if options.short else options.only in one.name:
                yield one.name, partial(drive.end, one)
    if kind == "ends-kept":
        for one in _able(ENDS_KEPT):
            if one.name in SHORT_KEPT if options.short else options.only in one.name:
                yield f"kept: {one.name}", partial(drive.kept_end, one)
    if kind == "causes-clean":
        scripts = [one for one in CLEAN if (not one[2] or find_spec(one[2])) and options.only in one[0]]
        with _load(options.load):
            for number in range(COUNT_CLEAN if scripts else 0):
                script, settings, _ = scripts[number % len(scripts)]
                yield f"clean {script} {number}", partial(drive.clean, script, dict(settings), number)


def _able(cases: Iterable[End]) -> list[End]:
    """The cases that this machine allows."""
    return [one for one in cases if one.how != "memory" or can_limit()]


@contextmanager
def _load(count: int) -> Iterator[None]:
    """Processes that compute for random times, as other jobs of a machine."""
    others = [multiprocessing.Process(target=_compute, args=(number,), daemon=True) for number in range(count)]
    for one in others:
        one.start()
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.join()


def _compute(seed: int) -> None:
    import random
    import time

    dice = random.Random(seed)
    while True:
        until = time.monotonic() + dice.expovariate(0.5)
        while time.monotonic() < until:
            sum(range(1000))
        time.sleep(dice.expovariate(0.5))


if __name__ == "__main__":
    sys.exit(main())
