"""CPU seconds and memory of `windtunnel runs show` on a large profiler trace, made by repeating the events of a small one.

    python benchmarks/large_trace.py TRACE.json[.gz] [MEGABYTES]

The bars: 1 GB in 12 CPU seconds and 300 MB of resident memory.
"""

from __future__ import annotations

import gzip
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

_FIRST = re.compile(rb'"traceEvents"\s*:\s*\[')
_LAST = re.compile(rb'\}\s*\]\s*(?:,\s*"[A-Za-z]+"\s*:|\}\s*$)')


def repeated(source: Path, target: Path, size: int) -> None:
    """Writes a trace of at least `size` bytes."""
    data = source.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    first = _FIRST.search(text)
    last = [match.start() + 1 for match in _LAST.finditer(text)]
    if first is None or not last:
        raise SystemExit(f"{source}: no trace events")
    events = text[first.end() : last[-1]].strip()
    with target.open("wb") as file:
        file.write(text[: first.end()] + events)
        for _ in range(size // len(events)):
            file.write(b",\n" + events)
        file.write(text[last[-1] :])


def main(source: Path, megabytes: int) -> None:
    """Makes the file, shows it as a command of its own does, prints what that took."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "large.json"
        repeated(source, target, megabytes * 10**6)
        subprocess.run([sys.executable, "-m", "windtunnel", "runs", "show", target], stdout=subprocess.DEVNULL, check=True)
        took = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, memory = took.ru_utime + took.ru_stime, took.ru_maxrss * 1024 / 1e6
        print(f"{target.stat().st_size / 1e9:.2f} GB: {seconds:.1f} CPU s, {memory:,.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
