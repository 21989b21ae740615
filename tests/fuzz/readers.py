"""Mutated files through every reader: no crash, no hang, no flood of memory.

    python tests/fuzz/readers.py [--count N] [--seconds S] [--corpus FOLDER]... [--seed S] [--jobs J]

The corpus is what our exporters write, the examples' inputs and the files of each FOLDER. A file is cut, spliced, has bytes and
numbers changed, and goes through the door and what follows it (the breakdown of a run). Workers are processes with 2 GB of memory
beyond their own and 10 s of CPU time for a file. Every failure is written to out/fuzz/ and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10
"""Of CPU time, so that a busy machine is no failure."""
MEMORY = 2 * 2**30
LARGEST = 256 * 1024
BLOCK = 500
"""Files that one draw of random numbers makes."""
CORPUS: list[tuple[str, bytes]] = []
"""(name, bytes) of every file, in a worker."""
JOBS = ("llama3-8b-8xh100",)
SMALL = ["model.layers=1", "plan.global_batch=8"]
NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"99999999999999999999",
    b"nan",
    b"2147483648",
    b"18446744073709551615",
    b"[]",
    b"{}",
    b'""',
    b"null",
)


def main() -> int:
    arguments = _arguments()
    corpus = _corpus([Path(folder) for folder in arguments.corpus])
    print(f"{len(corpus)} files in the corpus", flush=True)
    until = time.monotonic() + arguments.seconds
    blocks = [
        (f"{arguments.seed}.{block}", min(BLOCK, arguments.count - block * BLOCK), until)
        for block in range(-(-arguments.count // BLOCK))
    ]
    done, failures = 0, 0
    with multiprocessing.get_context("fork").Pool(arguments.jobs, _limited, (corpus,)) as pool:
        for count, failed in pool.imap_unordered(_work, blocks):
            done += count
            failures += failed
            if sys.stderr.isatty():
                print(f"\r{done:,} of {arguments.count:,} files, {failures} failures", end="", file=sys.stderr, flush=True)
    print(f"{done} mutated files, {failures} failures")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--corpus", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def _corpus(folders: list[Path]) -> list[tuple[str, bytes]]:
    """(name, bytes) of every file."""
    from windtunnel.formats.exporters import EXPORTERS, exporter_of
    from windtunnel.spec import load_job

    files: list[tuple[str, bytes]] = []
    for name in JOBS:
        job = load_job(name, SMALL)
        for exporter in EXPORTERS:
            for path, data in list(exporter_of(exporter.name).export(job, {}).files.items())[:4]:
                files.append((path, data.encode() if isinstance(data, str) else data))
    for folder in (ROOT / "examples" / "inputs", ROOT / "tests" / "data", *folders):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size <= 4 * LARGEST:
                files.append((path.name, path.read_bytes()))
    return [(name, data[:LARGEST]) for name, data in files if data]


def _limited(corpus: list[tuple[str, bytes]]) -> None:
    """A worker's corpus and its limits."""
    CORPUS[:] = corpus
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # threads of libraries reserve address space
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY + 4 * 2**30, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, _too_long)


def _work(block: tuple[str, int, float]) -> tuple[int, int]:
    """Files that were tried, and those that made a reader fail."""
    seed, count, until = block
    draw = random.Random(seed)
    failures = done = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            if time.monotonic() > until:
                break
            name, data = draw.choice(CORPUS)
            path = Path(folder) / name
            path.write_bytes(_mutated(data, CORPUS, draw))
            failures += _tried(path, f"{seed}-{number}")
            path.unlink()
            done += 1
    return done, failures


def _mutated(data: bytes, corpus: list[tuple[str, bytes]], draw: random.Random) -> bytes:
    packed = data[:2] == b"\x1f\x8b" and draw.random() < 0.7
    if packed:
        try:
            data = gzip.decompress(data)[:LARGEST]
        except (OSError, EOFError):
            packed = False
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        if not out:
            break
        at = draw.randrange(len(out))
        kind = draw.randrange(7)
        if kind == 0:
            out[at] = draw.randrange(256)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + draw.choice((1, 4, 100))]
        elif kind == 3:
            out[at:at] = out[at : at + draw.choice((1, 16, 1000))] * draw.choice((1, 2, 20))
        elif kind == 4:
            other = draw.choice(corpus)[1]
            begin = draw.randrange(len(other))
            out[at:at] = other[begin : begin + draw.choice((8, 200))]
        elif kind == 5:
            end = at
            while end < len(out) and chr(out[end]).isdigit():
                end += 1
            out[at:end] = draw.choice(NUMBERS)
        else:
            out[at] ^= 1 << draw.randrange(8)
    return gzip.compress(bytes(out), 1) if packed else bytes(out)


def _tried(path: Path, number: str) -> int:
    """1 if the file made a reader fail."""
    from windtunnel.base.errors import WindtunnelError

    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        _read(path)
    except WindtunnelError:
        return 0
    except BaseException as error:  # whatever it is, it is a failure of ours
        if isinstance(error, KeyboardInterrupt):
            raise
        signal.setitimer(signal.ITIMER_PROF, 0)
        kept = ROOT / "out" / "fuzz"
        kept.mkdir(parents=True, exist_ok=True)
        target = kept / f"{number}-{path.name}"
        target.write_bytes(path.read_bytes())
        print(f"FAILED {target.relative_to(ROOT)}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        print("".join(traceback.format_tb(error.__traceback__)[-2:]), flush=True)
        return 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return 0


def _read(path: Path) -> None:
    from windtunnel.formats.door import read_files
    from windtunnel.formats.reading import Content

    reading: Any = read_files([path])
    if reading.content is Content.RUN:
        from windtunnel.runs.report import as_json, report_of

        as_json(report_of(reading.value))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU time")


if __name__ == "__main__":
    sys.exit(main())
