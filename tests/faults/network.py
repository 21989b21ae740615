"""Machines that are network namespaces, every two joined by a veth pair of their own with a token bucket at both ends.

Needs root, `ip` and `tc`. Rates are those of the token bucket: nothing here is a test of a real NIC.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import combinations, count
from types import TracebackType

_NUMBERS = count()


def can_make_networks() -> bool:
    """Whether this process may make namespaces with shaped links."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
        return False
    try:
        with Machines(2, 1e8):
            return True
    except subprocess.CalledProcessError:
        return False


class Machines:
    """`count` machines; `rate`: bits a second of every link. Leaving the block takes all of it away."""

    def __init__(self, count: int, rate: float) -> None:
        tag = f"{os.getpid() % 100000:x}{next(_NUMBERS) % 256:x}"
        self.names = [f"wt{tag}n{index}" for index in range(count)]
        self.rate = rate
        self.tag = tag

    def __enter__(self) -> Machines:
        try:
            for name in self.names:
                _run("ip", "netns", "add", name)
                _run("ip", "-n", name, "link", "set", "lo", "up")
            for first, second in combinations(range(len(self.names)), 2):
                self._join(first, second)
        except subprocess.CalledProcessError:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def address(self, index: int) -> str:
        return f"10.99.{index + 1}.1"

    def interface(self, index: int) -> str:
        """The interface that has the machine's address."""
        other = 1 if index == 0 else 0
        return self._end(index, other)

    def prefix(self, index: int) -> tuple[str, ...]:
        """A command under which another runs on the machine."""
        return ("ip", "netns", "exec", self.names[index])

    def shape(self, first: int, second: int, rate: float) -> None:
        """Both directions of one link to `rate` bits a second. The bucket stays as large as at first: what waits before a bucket
        that shrinks below its length is never sent.
        """
        bucket = str(max(4096, int(self.rate / 8 * 0.0005)))
        for here, there in ((first, second), (second, first)):
            _run(
                "tc", "-n", self.names[here], "qdisc", "replace", "dev", self._end(here, there), "root", "tbf",
                "rate", f"{int(rate)}bit", "burst", bucket, "latency", "200ms",
            )  # fmt: skip

    def _end(self, here: int, there: int) -> str:
        return f"v{here}{there}-{self.tag}"

    def _join(self, first: int, second: int) -> None:
        ends = self._end(first, second), self._end(second, first)
        _run(
            "ip", "link", "add", ends[0], "netns", self.names[first],
            "type", "veth", "peer", "name", ends[1], "netns", self.names[second],
        )  # fmt: skip
        for here, end in ((first, ends[0]), (second, ends[1])):
            name = self.names[here]
            if end == self.interface(here):
                _run("ip", "-n", name, "addr", "add", f"{self.address(here)}/32", "dev", end)
            _run("ip", "-n", name, "link", "set", end, "up")
        for here, there, end in ((first, second, ends[0]), (second, first, ends[1])):
            _run("ip", "-n", self.names[here], "route", "add", f"{self.address(there)}/32", "dev", end, "src", self.address(here))
        self.shape(first, second, self.rate)

    def _remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
