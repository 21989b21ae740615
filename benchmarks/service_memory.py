"""Memory of a server with many tabs and many kept answers: `python benchmarks/service_memory.py [--tabs 100] [--answers 10000]`.

Answers are asked by HTTP (`memory` of jobs that differ); tabs are opened in one headless Chromium, each a page of
the section named with `--section`. Prints the resident memory of the server alone, in MB, after each part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tests.browser.opened import started
from tests.browser.served_page import ServedPage
from tests.service.served import ServedProcess


def resident(pid: int) -> float:
    """Resident memory of a process, MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def keep_answers(url: str, count: int) -> int:
    """Asks so many questions that differ. Returns how many were answered."""
    done = 0
    for number in range(count):
        body = json.dumps({"job": "llama3-8b-8xh100", "set": {"plan.global_batch": 8 * (number + 1)}}).encode()
        asked = urllib.request.Request(f"{url}/api/v1/memory", body, {"Content-Type": "application/json", "Prefer": "wait=60"})
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                done += answer.status == 200
        except urllib.error.HTTPError:
            continue
    return done


def main() -> None:
    """Measures, and prints a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tabs", type=int, default=100)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--section", default="trust")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ServedProcess(Path(folder), ["--per-minute", "1000000"]) as served:
        served.ready()
        if served.process is None:
            raise RuntimeError("the service has not started")
        pid = served.process.pid
        print(f"started: {resident(pid):.0f} MB")
        print(f"{keep_answers(served.url, asked.answers):,} answers kept: {resident(pid):.0f} MB")
        with started() as browser:
            first = ServedPage(browser, served.url)
            first.open(asked.section)
            print(f"1 tab: {resident(pid):.0f} MB")
            tabs = [ServedPage(browser, served.url) for _ in range(asked.tabs - 1)]
            for tab in tabs:
                tab.open(asked.section)
            print(f"{asked.tabs} tabs: {resident(pid):.0f} MB")


if __name__ == "__main__":
    main()
