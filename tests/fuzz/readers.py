"""Mutated files through every reader: no crash, no hang, no flood of memory.

    python tests/fuzz/readers.py [--count N] [--seconds S] [--corpus FOLDER]... [--seed S] [--jobs J] [--record FILE]

The corpus is what our exporters write, the examples' inputs and the files of each FOLDER. A file is cut, spliced, has bytes,
numbers and values changed, and goes through the door and what follows it. Workers are processes with 2 GB of memory beyond their
own and 10 s of CPU time for a file. Every failure is written to out/fuzz/ and makes the exit code 1.

Files are made in blocks of 500, each from the seed and its number. `--record FILE` gets a line for each block that is done; blocks
that are in it are not done again, so a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from corpus import Draws, seeds_of
from mutations import mutated
from tried import failed, limit

BLOCK = 500
"""Files that one draw of random numbers makes."""
MEMORY_DISK = Path("/dev/shm")
DRAWS: list[Draws] = []
"""The corpus, in a worker."""


def main() -> int:
    arguments = _arguments()
    draws = Draws(seeds_of([Path(folder) for folder in arguments.corpus]))
    done, failures = _recorded(arguments.record, arguments.seed)
    files = sum(done.values())
    if done:
        print(f"{files} files of {len(done)} blocks are done already, {failures} failures", flush=True)
    with multiprocessing.get_context("fork").Pool(arguments.jobs, _worker, (draws,)) as pool:
        for block, count, bad in pool.imap_unordered(_work, _blocks(arguments, done)):
            files += count
            failures += bad
            if arguments.record and count:
                with arguments.record.open("a") as record:
                    record.write(json.dumps({"seed": arguments.seed, "block": block, "files": count, "failures": bad}) + "\n")
            if sys.stderr.isatty():
                print(f"\r{files:,} of {arguments.count:,} files, {failures} failures", end="", file=sys.stderr, flush=True)
    print(f"{files} mutated files, {failures} failures")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--corpus", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", type=Path)
    return parser.parse_args()


def _recorded(record: Path | None, seed: int) -> tuple[dict[int, int], int]:
    """Files of each whole block of this seed that a record holds, and their failures."""
    if record is None or not record.exists():
        return {}, 0
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    mine = [line for line in lines if line["seed"] == seed]
    return {line["block"]: line["files"] for line in mine}, sum(line["failures"] for line in mine)


def _blocks(arguments: argparse.Namespace, done: dict[int, int]) -> Iterator[tuple[int, int, int, float]]:
    until = time.monotonic() + arguments.seconds
    for block in range(-(-arguments.count // BLOCK)):
        if block not in done:
            yield arguments.seed, block, min(BLOCK, arguments.count - block * BLOCK), until


def _worker(draws: Draws) -> None:
    DRAWS[:] = [draws]
    limit()


def _work(block: tuple[int, int, int, float]) -> tuple[int, int, int]:
    """The block's number, files that were tried, and those that made a reader fail."""
    seed, number, count, until = block
    draw = random.Random(f"{seed}.{number}")
    failures = tried = 0
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        for each in range(count):
            if time.monotonic() > until:
                break
            file = DRAWS[0].one(draw)
            path = Path(folder) / file.name
            path.write_bytes(mutated(file, DRAWS[0], draw))
            failures += failed(path, f"{seed}.{number}-{each}")
            path.unlink()
            tried += 1
    return number, tried, failures


if __name__ == "__main__":
    sys.exit(main())
