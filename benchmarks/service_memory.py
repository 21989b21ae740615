"""Memory of a server with many tabs and many kept answers: `python benchmarks/service_memory.py [--tabs 100] [--answers 10000]`.

The first answers are asked by HTTP (`memory` of jobs that differ); the others are theirs under keys of their own, put into the
store while the server is down. Each is then read once. Tabs are opened in one headless Chromium, twice over, each a page of the
section named with `--section`. Prints the resident memory of the server alone, in MB, after each part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.browser.opened import started
from tests.browser.served_page import ServedPage
from tests.service.served import ServedProcess
from windtunnel.service.store.blobs import Blobs
from windtunnel.service.store.database import answers, open_database

ASKED = 40
"""Answers that are asked for by HTTP."""
SETTLE = 30.0
"""Seconds after which a closed tab is forgotten, and some more."""


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


def multiply_answers(folder: Path, count: int) -> list[str]:
    """Fills the store up to so many answers, each with a body of its own. Returns the keys of all."""
    database, blobs = open_database(folder, None), Blobs(folder / "blobs")
    with database.transaction() as connection:
        known = [dict(row) for row in connection.execute(answers.select()).mappings()]
        for number in range(count - len(known)):
            row = known[number % len(known)]
            body = (blobs.get(row["body"]) or b"{}") + f" {number}".encode()
            key = hashlib.sha256(body).hexdigest()
            connection.execute(answers.insert().values(**{**row, "key": key, "body": blobs.put(body)}))
        keys = [str(key) for (key,) in connection.execute(answers.select().with_only_columns(answers.c.key))]
    database.close()
    return keys


def main() -> None:
    """Measures, and prints a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tabs", type=int, default=100)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--section", default="trust")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        served = ServedProcess(Path(folder), ["--per-minute", "1000000"])
        with served:
            kept = keep_answers(served.ready().url, ASKED)
        keys = multiply_answers(Path(folder), asked.answers)
        with served:
            served.ready()
            if served.process is None:
                raise RuntimeError("the service has not started")
            pid = served.process.pid
            print(f"{kept} answers asked, {len(keys):,} kept; started: {resident(pid):.0f} MB", flush=True)
            for key in keys:
                with urllib.request.urlopen(f"{served.url}/api/v1/answers/{key}", timeout=60) as answer:
                    answer.read()
            print(f"all of them read: {resident(pid):.0f} MB", flush=True)
            for _ in range(2):
                with started() as browser:
                    tabs = [ServedPage(browser, served.url) for _ in range(asked.tabs)]
                    for number, tab in enumerate(tabs, 1):
                        tab.open(asked.section)
                        if number in (1, asked.tabs):
                            print(f"{number} tabs: {resident(pid):.0f} MB", flush=True)
                time.sleep(SETTLE)
                print(f"{SETTLE:.0f} s after all are closed: {resident(pid):.0f} MB", flush=True)


if __name__ == "__main__":
    main()
