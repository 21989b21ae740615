"""The shared loader with numpy batches and real processes: what is read once, kills of everybody, exact resume. No torch."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.fleet.loading.loader import NodePlace, SharedLoader
from windtunnel.fleet.loading.workers import EpochOrder, ReaderError, pack, stack, unpack

names = itertools.count()
LONG = 60.0


@pytest.fixture
def address() -> Iterator[str]:
    """An address of its own; afterwards no process may hold anything by that name."""
    name = f"test-{os.getpid()}-{next(names)}-"
    yield name
    gone(name)


def holders(name: str) -> set[int]:
    """Processes with an open slot, or a mapped one, of the reader at `name`."""
    found = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
            if name in (process / "maps").read_text() or any(name in link for link in links):
                found.add(int(process.name))
        except OSError:
            continue
    return found


def gone(name: str) -> None:
    """Waits until no process holds a slot."""
    end = time.monotonic() + LONG
    while left := holders(name):
        assert time.monotonic() < end, f"{left} still hold slots"
        time.sleep(0.02)
    assert not [one for one in os.listdir("/dev/shm") if name in one]


class Rank:
    """A forked rank; `lines` are what it told, as JSON."""

    def __init__(self, body: Callable[[Callable[[Any], None]], None]) -> None:
        there, here = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(there)
            code = 1
            try:
                body(lambda words: os.write(here, (json.dumps(words) + "\n").encode()) and None)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(here)
        self.pipe = os.fdopen(there)

    def line(self) -> Any:
        return json.loads(self.pipe.readline())

    def kill(self) -> list[Any]:
        os.kill(self.process, signal.SIGKILL)
        return self.lines(-signal.SIGKILL)

    def lines(self, code: int = 0) -> list[Any]:
        """All that is left, once the process has ended with `code`."""
        found = [json.loads(line) for line in self.pipe if line.endswith("\n")]
        self.pipe.close()
        assert os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]) == code
        return found


def told_by(bodies: Sequence[Callable[[Callable[[Any], None]], None]]) -> list[list[Any]]:
    """What each rank tells. The first ends last: its reader ends with it where nobody is connected, and a rank may be slow to
    begin."""
    ended, others = os.pipe()

    def first(tell: Callable[[Any], None]) -> None:
        os.close(others)
        bodies[0](tell)
        os.read(ended, 1)

    ranks = [Rank(body) for body in (first, *bodies[1:])]
    os.close(others)
    os.close(ended)
    return [rank.lines() for rank in ranks]


class Numbers:
    """Sample i is i with a random word of its own; shapes differ."""

    def __init__(self, samples: int = 48, wait: float = 0.0) -> None:
        self.samples, self.wait = samples, wait

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(self.wait)
        return {"id": index, "noise": (np.random.rand(), random.random()), "text": str(index)}


def ragged(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch whose shape depends on its samples."""
    batch = stack(samples)
    return batch | {"long": np.full((2, int(batch["id"].sum()) * 100), batch["id"][0])}


def seen(batch: dict[str, Any]) -> list[Any]:
    return [batch["id"].tolist(), batch["noise"][0].tolist(), batch["noise"][1].tolist(), batch["text"]]


def test_order_deals_every_sample_once_an_epoch_and_anew_each_epoch() -> None:
    order = EpochOrder(103, 5, 4, shuffle=True, seed=9)
    assert order.steps == 5
    epochs = [[list(order.batches(epoch, share)) for share in range(4)] for epoch in (0, 1)]
    for epoch in epochs:
        flat = [index for share in epoch for batch in share for index in batch]
        assert len(flat) == len(set(flat)) == 100
    assert epochs[0] != epochs[1]
    assert epochs[0][2] == list(EpochOrder(103, 5, 4, True, 9).batches(0, 2))
    assert list(EpochOrder(8, 2, 2).batches(0, 1)) == [[1, 3], [5, 7]]
    assert [len(batch) for batch in EpochOrder(10, 4, 1, drop_last=False).batches(0)] == [4, 4, 2]
    assert [list(EpochOrder(5, 2, 2, drop_last=False).batches(0, share)) for share in (0, 1)] == [[[0, 2], [4]], [[1, 3], [0]]]
    with pytest.raises(PlanError, match="batch_size smaller"):
        EpochOrder(7, 4, 2)


def test_parcels_keep_nesting_types_and_values() -> None:
    thing = {
        "a": (np.arange(6).reshape(2, 3), [np.zeros((0, 4)), "x"]),
        "b": None,
        "c": np.array([True, False]),
        "d": np.float32(2),
    }
    blob = bytearray(b"".join(pack(thing)))
    back = unpack(memoryview(blob))
    assert back["a"][0].tolist() == [[0, 1, 2], [3, 4, 5]] and back["a"][1][0].shape == (0, 4) and back["a"][1][1] == "x"
    assert back["b"] is None and back["c"].dtype == bool and back["d"] == np.float32(2)
    at = bytes(blob).index(np.arange(6).tobytes())
    blob[at] = 7  # the array lies in the blob
    assert back["a"][0][0, 0] == 7


@pytest.mark.parametrize("workers", [0, 3])
def test_ranks_of_a_lane_get_the_same_batches_and_lanes_their_own(address: str, workers: int) -> None:
    lanes = (0, 0, 1, 1)

    def body(local: int) -> Callable[[Callable[[Any], None]], None]:
        def run(tell: Callable[[Any], None]) -> None:
            place = NodePlace(local, lanes, 3)
            with SharedLoader(
                Numbers(), 4, place, address=address, shuffle=True, seed=5, collate_fn=ragged, num_workers=workers
            ) as loader:
                for _ in range(2):
                    assert len(loader) == 4
                    for batch in loader:
                        assert batch["long"].shape == (2, batch["id"].sum() * 100) and (batch["long"] == batch["id"][0]).all()
                        batch["long"][:] = -1 - local  # nobody else's changes
                        tell(seen(batch))

        return run

    found = told_by([body(local) for local in range(4)])
    assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]
    order = EpochOrder(48, 4, 3, True, 5)
    for local, share in ((0, 0), (2, 1)):
        assert [batch[0] for batch in found[local]] == [batch for epoch in (0, 1) for batch in order.batches(epoch, share)]


def test_batches_that_are_kept_stay_as_they_were(address: str) -> None:
    with SharedLoader(Numbers(), 2, address=address, collate_fn=ragged, prefetch=1) as loader:
        kept = list(loader)
        again = [batch["id"].tolist() for batch in kept]
    assert again == list(EpochOrder(48, 2).batches(0))
    assert all((batch["long"] == batch["id"][0]).all() for batch in kept)


def test_eight_ranks_read_an_eighth_of_the_bytes(address: str, tmp_path: Path) -> None:
    """Counted where the dataset reads: every read adds a byte to a file."""
    data, counter = tmp_path / "data", tmp_path / "reads"
    np.arange(64 * 16, dtype=np.int64).tofile(data)

    class OnDisk:
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> np.ndarray:
            with counter.open("ab", buffering=0) as count:
                count.write(b".")
            return np.fromfile(data, np.int64, 16, offset=index * 128)

    def run(tell: Callable[[Any], None], local: int, shared: bool) -> None:
        if shared:
            with SharedLoader(OnDisk(), 4, NodePlace(local, (0,) * 8, 1), address=address, collate_fn=stack) as loader:
                for batch in itertools.islice(loader, 16):
                    tell(batch.tolist())
        else:
            for indices in EpochOrder(64, 4).batches(0):
                tell(stack([OnDisk()[index] for index in indices]).tolist())

    alone = [rank.lines() for rank in [Rank(lambda tell, at=at: run(tell, at, False)) for at in range(8)]]
    apart = counter.stat().st_size
    counter.unlink()
    together = told_by([lambda tell, at=at: run(tell, at, True) for at in range(8)])
    gone(address)
    ahead = 4 * 4  # what the reader may have begun of the next epoch
    assert apart == 8 * 64 and 64 <= counter.stat().st_size <= 64 + ahead
    assert together == alone


def test_kill_and_resume_gives_the_same_samples_50_of_50(address: str) -> None:
    """Everybody is killed with SIGKILL after a random number of batches; a new node goes on from the last saved state."""
    dice = random.Random(14)

    def reading(at: str, state: Any, limit: int) -> Callable[[Callable[[Any], None]], None]:
        def run(tell: Callable[[Any], None]) -> None:
            place = NodePlace(0, (1,), 2)
            loader = SharedLoader(
                Numbers(), 3, place, address=at, shuffle=True, seed=2, collate_fn=stack, num_workers=2, prefetch=3
            )
            if state is not None:
                loader.load_state_dict(state)
            while True:
                for batch in loader:
                    tell([seen(batch), loader.state_dict()])
                    limit_left[0] -= 1
                    if not limit_left[0]:
                        signal.pause()

        limit_left = [limit]
        return run

    whole = Rank(reading(address + "whole", None, 40))
    expected = [whole.line()[0] for _ in range(40)]
    whole.kill()
    for trial in range(50):
        stop, total = dice.randint(1, 20), 24
        first = Rank(reading(f"{address}{trial}a", None, stop))
        before = [first.line() for _ in range(stop)]
        for one in holders(f"{address}{trial}a") - {first.process}:
            os.kill(one, signal.SIGKILL)
        first.kill()
        saved = dice.randrange(stop)
        second = Rank(reading(f"{address}{trial}b", before[saved][1], total))
        after = [second.line()[0] for _ in range(total - saved - 1)]
        second.kill()
        assert [one[0] for one in before[: saved + 1]] + after == expected[:total], trial


def test_a_killed_rank_does_not_hold_up_its_peer(address: str) -> None:
    def run(tell: Callable[[Any], None], local: int) -> None:
        with SharedLoader(Numbers(480), 2, NodePlace(local, (0, 0), 1), address=address, collate_fn=stack, prefetch=1) as loader:
            for at, batch in enumerate(loader):
                tell(batch["id"].tolist())
                if local == 0 and at == 2:
                    signal.pause()

    first, second = Rank(lambda tell: run(tell, 0)), Rank(lambda tell: run(tell, 1))
    assert [first.line() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    begun = second.line()
    os.kill(first.process, signal.SIGKILL)  # local rank 0, whose child the reader is
    assert [begun, *second.lines()] == list(EpochOrder(480, 2).batches(0))
    first.lines(-signal.SIGKILL)


def test_a_killed_reader_or_worker_is_seen(address: str) -> None:
    def run(tell: Callable[[Any], None]) -> None:
        loader = SharedLoader(Numbers(480), 2, address=address, collate_fn=stack)
        try:
            for batch in loader:
                tell(batch["id"].tolist())
                time.sleep(0.01)
        except ReaderError as error:
            tell(str(error))

    for spared in (0, 1):  # the reader holds slots, and so does its worker
        rank = Rank(run)
        rank.line()
        victims = sorted(holders(address) - {rank.process})
        assert len(victims) == 2
        os.kill(victims[spared], signal.SIGKILL)
        assert "gone" in (told := rank.lines()[-1]) or "killed" in told
        gone(address)


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
def test_nothing_is_left_when_all_are_killed_at_once_or_while_starting(address: str, seconds: float) -> None:
    def run(tell: Callable[[Any], None], local: int) -> None:
        loader = SharedLoader(Numbers(), 2, NodePlace(local, (0, 0, 1), 2), address=address, collate_fn=ragged, num_workers=2)
        while True:
            for _ in loader:
                time.sleep(0.001)

    ranks = [Rank(lambda tell, at=at: run(tell, at)) for at in range(3)]
    time.sleep(seconds)
    for rank in ranks:
        os.kill(rank.process, signal.SIGKILL)
    for rank in ranks:
        rank.lines(-signal.SIGKILL)
    gone(address)


class Broken(Numbers):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise KeyError("no sample five")
        return super().__getitem__(index)


def test_errors_of_the_dataset_keep_type_and_traceback(address: str) -> None:
    loader = SharedLoader(Broken(), 2, address=address, collate_fn=stack)
    found = []
    with pytest.raises(KeyError, match="no sample five") as caught:
        for batch in loader:
            found.append(batch["id"].tolist())
    assert found == [[0, 1], [2, 3]]
    assert "in __getitem__" in caught.value.__notes__[0]


class Words:
    """An iterable dataset that knows where it is."""

    def __init__(self, samples: int) -> None:
        self.samples, self.at, self.epoch = samples, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.at = epoch, 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < self.samples:
            self.at += 1
            yield {"id": self.epoch * 1000 + self.at - 1, "noise": (np.random.rand(), random.random()), "text": "w"}


class Resumable(Words):
    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("kind", [Words, Resumable])
def test_streams_are_dealt_in_turn_and_resume(address: str, kind: type[Words]) -> None:
    def run(tell: Callable[[Any], None], local: int, state: Any, name: str) -> None:
        loader = SharedLoader(kind(26), 2, NodePlace(local, (0, 1), 2), address=address + name, collate_fn=stack, prefetch=3)
        if state:
            loader.load_state_dict(state)
        for _ in range(2):
            for batch in loader:
                tell([seen(batch), loader.state_dict()])

    whole = told_by([lambda tell, at=at: run(tell, at, None, "a") for at in (0, 1)])
    assert [one[0][0] for one in whole[1]] == [[e * 1000 + at + 1, e * 1000 + at + 3] for e in (0, 1) for at in range(0, 24, 4)]
    for stop in (0, 3, 5, 7):
        again = told_by([lambda tell, at=at, stop=stop: run(tell, at, whole[at][stop][1], f"b{stop}") for at in (0, 1)])
        for at, lines in enumerate(again):
            expected = [one[0] for one in whole[at][stop + 1 :]]
            assert [one[0] for one in lines][: len(expected)] == expected


def test_wrong_words_are_refused(address: str) -> None:
    with pytest.raises(SpecError):
        SharedLoader(Numbers(), 2, address=address, prefetch=0)
    with pytest.raises(PlanError):
        SharedLoader(Words(3), 2, address=address, shuffle=True)
    with pytest.raises(PlanError):
        NodePlace(0, (4,), 2)
    state = SharedLoader(Numbers(), 2, address=address, collate_fn=stack, seed=1).state_dict()
    with pytest.raises(PlanError, match="seed"):
        SharedLoader(Numbers(), 2, address=address, collate_fn=stack).load_state_dict(state)
    with pytest.raises(ReaderError, match="an epoch has no batch"):
        next(iter(SharedLoader(Words(1), 2, address=address, collate_fn=stack)))


def test_a_break_leaves_the_rest_of_the_epoch(address: str) -> None:
    with SharedLoader(Numbers(8), 2, address=address, collate_fn=stack) as loader:
        for batch in loader:
            if 2 in batch["id"]:
                break
        assert [batch["id"].tolist() for batch in loader] == [[4, 5], [6, 7]]
        assert loader.state_dict()["epoch"] == 1


def test_a_rank_can_ask_whether_data_is_late(address: str) -> None:
    with SharedLoader(Numbers(), 2, address=address, collate_fn=stack) as loader:
        assert not loader.ready()
        next(iter(loader))
        while not loader.ready():  # prefetched without being asked for
            time.sleep(0.01)


def test_an_address_may_be_used_again_at_once(address: str) -> None:
    for _ in range(5):
        with SharedLoader(Numbers(), 2, address=address, collate_fn=stack) as loader:
            assert next(iter(loader))["id"].tolist() == [0, 1]
