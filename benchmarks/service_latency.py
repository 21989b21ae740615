"""How long a service takes for a prediction: p50 and p95 at half of the rate that it keeps up with. Prints both; asserts nothing.

    python benchmarks/service_latency.py [SECONDS]

Every question differs, so none is answered from what is kept. A last line asks one question again, which is.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from queue import Empty, Queue

JOB = "llama3-8b-8xh100"
CLIENTS = 8


def ask(url: str, seq: int) -> float:
    """Seconds of one prediction."""
    body = json.dumps({"job": JOB, "set": {"plan.seq": seq}}).encode()
    request = urllib.request.Request(f"{url}/api/v1/predict", body, {"Content-Type": "application/json", "Prefer": "wait=60"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 200
        answer.read()
    return time.perf_counter() - began


def highest_rate(url: str, seqs: Iterator[int], seconds: float) -> float:
    """Predictions a second with CLIENTS that ask one after the other."""
    until, done = time.monotonic() + seconds, []

    def keep_asking() -> None:
        while time.monotonic() < until:
            done.append(ask(url, next(seqs)))

    threads = [threading.Thread(target=keep_asking) for _ in range(CLIENTS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done) / (time.monotonic() - began)


def at_rate(url: str, seqs: Iterator[int], rate: float, seconds: float) -> list[float]:
    """Seconds of predictions that arrive evenly, `rate` a second, whether or not the ones before have ended."""
    arrivals: Queue[tuple[float, int]] = Queue()
    took: list[float] = []

    def serve() -> None:
        while True:
            try:
                due, seq = arrivals.get(timeout=2.0)
            except Empty:
                return
            ask(url, seq)
            took.append(time.perf_counter() - due)

    threads = [threading.Thread(target=serve) for _ in range(4 * CLIENTS)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    for number in range(round(rate * seconds)):
        due = began + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        arrivals.put((due, next(seqs)))
    for thread in threads:
        thread.join()
    return took


def main() -> None:
    """Measures a service of its own."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    seqs = itertools.count(1024, 8)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "windtunnel", "serve", "--dir", folder, "--port", "0", "--per-minute", "1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split(" at ")[1].strip()
            try:
                for _ in range(20):
                    ask(url, next(seqs))
                most = highest_rate(url, seqs, seconds / 2)
                took = at_rate(url, seqs, most / 2, seconds)
                kept = statistics.median(ask(url, 1024) for _ in range(50))
            finally:
                process.terminate()
    cuts = statistics.quantiles(took, n=100)
    print(f"keeps up with {most:.1f} predictions/s; at half of it, {len(took)} of them:")
    print(f"p50 {cuts[49] * 1e3:.0f} ms   p95 {cuts[94] * 1e3:.0f} ms   p99 {cuts[98] * 1e3:.0f} ms")
    print(f"an answer that is kept: {kept * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
