"""One rank's checkpoint file and its share of a file of tokens, as frameworks write and read them.

A method prepares, yields, and does what is timed when all ranks are ready. A checkpoint is one `torch.save` into an open stream and
its fsync, as PyTorch's DCP writes the file of a rank; `torch.load` reads it. Samples are slices of a mapped file that are made
int64, tokens and labels, as Megatron's indexed datasets are read; its indices are not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import IO, Any, NamedTuple

from windtunnel.profile.storage.place import DiskFiles

TENSOR = 16 * 2**20
"""B of a tensor of the state at most."""

CHUNK = 16 * 2**20
"""B of tokens that are written and flushed at a time."""


class Took(NamedTuple):
    """When a rank began and ended by the clock, s; `stayed`: share of the file that the page cache kept, where it was asked to drop
    it; `size`: B; `times`: seconds of each sample."""

    begin: float
    end: float
    size: int
    stayed: float = 0.0
    times: tuple[float, ...] = ()


class SampleCase(NamedTuple):
    """Samples of `tokens` tokens of `width` B, every `workers`-th of each worker. `order`: sequential or random; cold ones at
    random have `apart` B between them: none lies in what the system reads around another. Not `cold`: read just before."""

    order: str
    workers: int
    tokens: int
    width: int
    apart: int
    cold: bool

    @property
    def sample_bytes(self) -> int:
        """B of a sample: one token more, since labels are the next ones."""
        return (self.tokens + 1) * self.width


Timed = Generator[None, None, Took]


class DiskRank:
    """Rank `rank`; `tokens`: a file that all ranks share."""

    def __init__(self, files: DiskFiles, clock: Callable[[], float], torch: Any, rank: int, tokens: IO[bytes]) -> None:
        self.files, self.clock, self.torch, self.rank, self.tokens = files, clock, torch, rank, tokens
        self.state: dict[str, Any] = {}
        self.file: IO[bytes] | None = None

    def write(self, size: int) -> Timed:
        """A checkpoint of `size` B until it is on the disk."""
        self._fill(size)
        if self.file is not None:
            self.file.close()
        self.file = self.files.create()
        yield
        begin = self.clock()
        try:
            self.torch.save(self.state, self.file)
            self.files.sync(self.file)
        except BaseException:
            self.file.close()  # a full disk has its room again
            raise
        return Took(begin, self.clock(), size)

    def read(self, size: int) -> Timed:
        """The checkpoint that was written, out of the page cache, into new tensors."""
        assert self.file is not None
        stayed = self.files.forget(self.file)
        with self.files.reopen(self.file) as stream:
            yield
            begin = self.clock()
            self.torch.load(stream, map_location="cpu", weights_only=True)
            return Took(begin, self.clock(), size, stayed)

    def read_past_cache(self, size: int) -> Timed:
        """The same file past the page cache, its bytes alone."""
        assert self.file is not None
        stayed = self.files.forget(self.file)
        yield
        begin = self.clock()
        read = self.files.read_direct(self.file)
        return Took(begin, self.clock(), read, stayed)

    def stage(self, size: int) -> Timed:
        """A copy of the state into memory that is there."""
        self._fill(size)
        copies = {name: tensor.clone() for name, tensor in self.state.items()}
        yield
        begin = self.clock()
        for name, tensor in self.state.items():
            copies[name].copy_(tensor)
        return Took(begin, self.clock(), size)

    def clear(self) -> Timed:
        """Gives back the checkpoint and its memory."""
        yield
        if self.file is not None:
            self.file.close()
        self.file, self.state = None, {}
        return Took(self.clock(), self.clock(), 0)

    def write_tokens(self, most: int, until: float) -> Timed:
        """Tokens, at most `most` B, until the clock says `until`."""
        raw = _random_bytes(min(CHUNK, most), self.rank)
        yield
        begin, size = self.clock(), 0
        while size + len(raw) <= most and (not size or self.clock() < until):
            size += self.tokens.write(raw)
            self.files.sync(self.tokens)
        return Took(begin, self.clock(), size)

    def samples(self, case: SampleCase, size: int, most: int, until: float) -> Timed:
        """At most `most` samples of this rank's out of `size` B of tokens, until the clock says `until`."""
        import numpy as np

        kind, count = {2: np.uint16, 4: np.int32}[case.width], case.tokens + 1
        mine = sample_places(case, size)[self.rank :: case.workers][:most]
        stayed = self.files.forget(self.tokens) if case.cold and self.rank == 0 else 0.0
        mapped = self.files.map_file(self.tokens)
        for place in () if case.cold else mine:
            np.frombuffer(mapped, dtype=kind, count=count, offset=place).sum()
        yield
        begin, times = self.clock(), []
        now = begin
        for place in mine:
            raw = np.frombuffer(mapped, dtype=kind, count=count, offset=place).astype(np.int64)
            text = self.torch.from_numpy(raw)
            text[:-1].contiguous(), text[1:].contiguous()
            before, now = now, self.clock()
            times.append(now - before)
            if now > until:
                break
        return Took(begin, now, case.sample_bytes, stayed, tuple(times))

    def _fill(self, size: int) -> None:
        """A state of `size` B: random bytes, which no file system compresses."""
        if sum(tensor.nbytes for tensor in self.state.values()) == size:
            return
        sizes = [TENSOR] * (size // TENSOR) + ([size % TENSOR] if size % TENSOR else [])
        self.state = {
            f"parameter.{place}": self.torch.frombuffer(bytearray(_random_bytes(part, place)), dtype=self.torch.uint8)
            for place, part in enumerate(sizes)
        }


def sample_places(case: SampleCase, size: int) -> list[int]:
    """Where samples begin in a file of `size` B; by chance they are the same in all ranks."""
    each, random_order = case.sample_bytes, case.order == "random"
    places = list(range(0, size - each + 1, each + (case.apart if random_order and case.cold else 0)))
    if random_order:
        random.Random(each).shuffle(places)
    return places


def _random_bytes(size: int, seed: int) -> bytes:
    import numpy as np

    return np.random.default_rng(seed).bytes(size)
