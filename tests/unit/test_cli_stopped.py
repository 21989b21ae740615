"""Ctrl-C in the middle of a run: what has ended is told, marked as partial, and the exit code is 130."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_CHILD = """
import importlib, signal, sys
from windtunnel import cli
module = importlib.import_module("windtunnel.{module}")
run = module.{name}

def wrapped(*given, **named):
    wrapped.calls += 1
    if wrapped.calls == {call}:
        signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)
    return run(*given, **named)

wrapped.calls = 0
module.{name} = wrapped
sys.exit(cli.main(sys.argv[1:]))
"""


def stopped(module: str, name: str, call: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, interrupted 0.2 s of its own CPU time after call number `call` of a function has begun.

    The runs below would take hours, and what has to end before the signal takes milliseconds, on whatever machine.
    """
    code = _CHILD.format(module=module, name=name, call=call)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=900, check=False)


def test_flows_that_have_ended_are_told(tmp_path: Path) -> None:
    flows, found, series = tmp_path / "f.csv", tmp_path / "out.json", tmp_path / "s.csv"
    flows.write_text("src,dst,bytes,start_s\n0,1,4096,0\n2,3,4000000000000,0\n")
    ran = stopped(
        "network.flows.run",
        "packet_flows",
        1,
        "flows",
        "--fabric",
        "fat_tree:k=4,link=400Gb/s",
        "--flows",
        str(flows),
        "--network",
        "packet",
        "--json",
        str(found),
        "--series",
        str(series),
        "--sample",
        "1ms",
    )
    assert ran.returncode == 130, ran.stderr
    assert "stopped: 1 of 2 flows had ended" in ran.stdout
    answer = json.loads(found.read_text())
    assert answer["finished"] is False
    first, second = (flow["fct_s"] for flow in answer["flows"])
    assert 0 < first < 1e-4 and second is None
    assert answer["stats"]["data_packet_hops"] > 1000
    assert "flow 1,acked_B" in series.read_text()


def test_rows_of_a_sweep_that_have_ended_are_told(tmp_path: Path) -> None:
    found = tmp_path / "out.json"
    ran = stopped(
        "network.simulate.collective",
        "run_packets",
        2,
        "collective",
        "--cluster",
        "h100-ib",
        "--gpus",
        "16",
        "--bytes",
        "1M,64G",
        "--network",
        "packet",
        "--mtu",
        "256",
        "--json",
        str(found),
    )
    assert ran.returncode == 130, ran.stderr
    assert "1 of 2 sizes are done." in ran.stderr and "windtunnel: stopped." in ran.stderr and "1048576" in ran.stdout
    answer = json.loads(found.read_text())
    assert answer["finished"] is False and [row["size"] for row in answer["rows"]] == [2**20]


def test_a_search_ends_and_says_that_it_was_stopped(tmp_path: Path) -> None:
    """Bounds alone take many seconds of CPU time on any machine. Whether a plan was found when the signal comes depends on the
    machine; the exit code and the last word do not."""
    found = tmp_path / "found.json"
    space = ["--set", "plan.seq=2048,4096,8192", "--gpus", "512,1024,2048,4096", "--jobs", "1"]
    ran = stopped("search.api", "search", 1, "search", "deepseek-v3-2048xh800", *space, "--json", str(found))
    assert ran.returncode == 130, ran.stderr
    assert ran.stderr.splitlines()[-1] == "windtunnel: stopped."
    assert "Traceback" not in ran.stderr and "open field" in ran.stdout
    assert found.exists() == ("To predict the best plan" in ran.stdout)
