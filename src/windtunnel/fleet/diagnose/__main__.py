"""`python -m windtunnel.fleet.diagnose NAME …`: one self-test, one line of JSON, an exit status."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, fields

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.diagnose.registry import TESTS, SelfTestOptions, TestResult, run_test

KEY = "WINDTUNNEL_FLEET_PAIR_KEY"
"""Environment variable with the secret that both sides of a pair share; it is never on a command line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named test: exit status 0 passed, 1 failed, 3 not applicable here, 2 invalid option."""
    given = _parser().parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:<16} {test.unit:<7} {test.about}" for name, test in TESTS.items()))
        return 0
    names = {one.name for one in fields(SelfTestOptions)} & set(vars(given))
    options = SelfTestOptions(**{name: getattr(given, name) for name in names}, key=os.environ.get(KEY, ""))
    timer = threading.Timer(options.limit, _fail_late, (given.test or "", options))
    timer.daemon = True
    timer.start()
    try:
        result = run_test(given.test or "", options)
    except WindtunnelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        timer.cancel()
    _print_result(result, given.json)
    return result.status


def _fail_late(name: str, options: SelfTestOptions) -> None:
    """Reports a test that exceeded its limit as failed and exits without waiting for it."""
    unit = TESTS[name].unit if name in TESTS else ""
    _print_result(
        TestResult(name, "unknown", False, None, unit, options.expect, options.limit, f"it did not end in {options.limit:g} s"),
        True,
    )
    os._exit(1)


def _print_result(result: TestResult, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(result)), flush=True)
        return
    state = {True: "passed", False: "FAILED", None: "not here"}[result.passed]
    figure = "" if result.measured is None else f"{result.measured:.4g} {result.unit}, "
    print(f"{result.test}: {state}: {figure}{result.why} ({result.backend}, {result.seconds:.1f} s)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m windtunnel.fleet.diagnose", description="A self-test of a node, a pair or a group.")
    parser.add_argument("test", nargs="?", help="its name; --list shows all")
    parser.add_argument("--list", action="store_true", help="the tests and their units")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = SelfTestOptions()
    parser.add_argument("--expect", type=float, help="the figure that is expected, in the test's unit")
    parser.add_argument("--share", type=float, default=options.share, help="the least share of it that passes")
    parser.add_argument("--seconds", type=float, default=options.seconds, help="to measure")
    parser.add_argument("--limit", type=float, default=options.limit, help="seconds for all of it; longer is a failure")
    parser.add_argument("--size", type=int, default=options.size, help="bytes of a buffer")
    parser.add_argument("--device", default=options.device, help="cuda, cuda:N, or cpu")
    parser.add_argument("--listen", default="", help="pair: HOST:PORT of this side")
    parser.add_argument("--peer", default="", help="pair: HOST:PORT of the other side")
    parser.add_argument("--rank", type=int, default=0, help="all-reduce: of this node")
    parser.add_argument("--world", type=int, default=1, help="all-reduce: nodes")
    parser.add_argument("--master", default="", help="all-reduce: HOST:PORT of rank 0")
    return parser


if __name__ == "__main__":
    sys.exit(main())
