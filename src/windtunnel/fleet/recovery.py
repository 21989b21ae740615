"""Steps of data-parallel training that go on when a rank raises or dies: survivors stay, and what is lost comes from a peer.

All ranks meet in a *generation*: each says in a store which finished steps it holds in memory, they make a process group, and go
on from the newest step that every shard of the state has a holder of. Whoever cannot go on, because its step raised or a peer is
gone, writes the fault of the generation into the store. That ends the generation for all: their connections are cut, and they meet
in the next one. A rank that was started anew finds that its predecessor had joined, which is a fault too.
"""

from __future__ import annotations

import copy
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.fleet.checkpoint.checkpointer import arrange_buckets, bucket_layouts, wrapped_modules
from windtunnel.fleet.checkpoint.states import PerRank
from windtunnel.fleet.event_log import append_event
from windtunnel.fleet.fence import describe, tell
from windtunnel.fleet.startup.store import CountingStore

Step = Callable[[int], object]
LOOK_SECONDS = 0.1
"""Between two looks of a training rank at the store. One that waits in a call of gloo hears of a fault by its connections."""
POLL_SECONDS = 0.01
"""Between two looks of a rank that waits for its peers."""
CONNECT_SECONDS = 30.0
"""For a process group to connect: a rank that dies meanwhile costs the others at most this."""


class RecoveryError(WindtunnelError):
    """A fault that ranks cannot go on from in memory; they end, and the job goes on from its checkpoint."""


class _EndedGeneration(Exception):
    """Another rank has ended the generation."""


class HeldSteps(msgspec.Struct, frozen=True):
    """What a rank says when it joins a generation."""

    held: dict[int, dict[str, str]]
    """Finished steps whose state it holds, with how its DDPs arranged their gradients then (`bucket_layouts`)."""
    peers: tuple[int, ...]
    """Ranks with the same state, itself included."""
    fruitless: int
    """Faults that it has seen since it last finished a step."""


def choose_step(joined: Sequence[HeldSteps]) -> tuple[int | None, dict[int, int]]:
    """(newest step of which every shard has a holder, rank that lacks it → rank that sends it); (None, {}) where no rank holds any.

    RecoveryError if shards are lost: no living rank has the same state.
    """
    shards: dict[tuple[int, ...], list[int]] = {}
    for rank, info in enumerate(joined):
        shards.setdefault(info.peers, []).append(rank)
    steps = [{step for rank in ranks for step in joined[rank].held} for ranks in shards.values()]
    if not any(steps):
        return None, {}
    common = set.intersection(*steps)
    if not common:
        lost = [rank for ranks, held in zip(shards.values(), steps, strict=True) if not held for rank in ranks]
        whose = f"of ranks {', '.join(map(str, lost))} is gone" if lost else "is not of one step"
        raise RecoveryError(
            f"the state {whose}, and no replica peer holds it in memory. End the job and start it from its checkpoint;"
            " `windtunnel fleet run --nodes` does so when these ranks end."
        )
    step = max(common)
    holder = {peers: next(rank for rank in ranks if step in joined[rank].held) for peers, ranks in shards.items()}
    return step, {rank: holder[info.peers] for rank, info in enumerate(joined) if step not in info.held}


class _GenerationStore(CountingStore):
    """The store under a process group: a rank that waits in it for a peer leaves when the generation has ended."""

    ended: Callable[[], bool]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        until = time.monotonic() + (timeout or self.timeout).total_seconds()
        while not self.inner.check(list(keys)):
            if self.ended() or time.monotonic() > until:
                raise dist.DistStoreError(f"waits in vain for {keys[0]}")
            time.sleep(POLL_SECONDS)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return super().get(key)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return super().multi_get(keys)


@dataclass
class _Memory:
    """Copies of a rank's state after its last steps, in host memory."""

    state: dict[str, Any]
    keep: int
    """Copies that are kept: two where ranks have different states, since they may be a step apart."""
    copies: dict[int, tuple[list[Any], TreeSpec]] = field(default_factory=dict)
    buckets: dict[int, dict[str, str]] = field(default_factory=dict)
    """How DDPs arranged their gradients after each step that is kept."""

    def store(self, step: int, buckets: dict[str, str]) -> None:
        """Copies the state. The oldest copy's buffers are used again."""
        live, spec = tree_flatten({key: _values(value) for key, value in self.state.items()})
        if any(isinstance(leaf, DTensor) for leaf in live):
            raise SpecError("state", "a sharded tensor (DTensor)", "state of DDP or plain modules", "Use a Checkpointer instead.")
        spare = self.copies.pop(min(self.copies)) if len(self.copies) >= self.keep else ([], spec)
        buffers = spare[0] if spare[1] == spec else []
        kept = []
        for place, leaf in enumerate(live):
            buffer = buffers[place] if place < len(buffers) else None
            if not isinstance(leaf, torch.Tensor):
                kept.append(copy.deepcopy(leaf))
            elif isinstance(buffer, torch.Tensor) and (buffer.shape, buffer.dtype) == (leaf.shape, leaf.dtype):
                kept.append(buffer.copy_(leaf.detach()))
            else:
                kept.append(torch.empty(leaf.shape, dtype=leaf.dtype).copy_(leaf.detach()))
        self.copies[step] = kept, spec
        self.buckets = {held: self.buckets.get(held, buckets) for held in self.copies}

    def restore(self, step: int) -> None:
        """Puts the copy of `step` into the objects of the state, and forgets later ones."""
        self.copies = {held: kept for held, kept in self.copies.items() if held <= step}
        values = tree_map_only(torch.Tensor, torch.clone, tree_unflatten(copy.copy(self.copies[step][0]), self.copies[step][1]))
        for key, value in values.items():
            target: Any = self.state.get(key)
            if isinstance(target, torch.nn.Module):
                target.zero_grad(set_to_none=True)
            if hasattr(target, "load_state_dict"):
                target.load_state_dict(copy.deepcopy(value))
            elif isinstance(target, torch.Tensor):
                target.data.copy_(value)
            else:
                self.state[key] = copy.deepcopy(value)

    def send(self, step: int, rank: int) -> None:
        """Sends a copy to `rank`: what it is made of, then each tensor."""
        kept, spec = self.copies[step]
        plan = [("tensor", leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else ("plain", leaf, None) for leaf in kept]
        dist.send_object_list([plan, spec], rank)
        for leaf in kept:
            if isinstance(leaf, torch.Tensor) and leaf.numel():
                dist.send(_on_wire(leaf), rank)

    def receive(self, step: int, rank: int) -> None:
        """Receives a copy from `rank`."""
        told: list[Any] = [None, None]
        dist.recv_object_list(told, rank)
        kept = []
        for kind, what, dtype in told[0]:
            leaf = torch.empty(what, dtype=dtype) if kind == "tensor" else what
            if kind == "tensor" and leaf.numel():
                wire = _on_wire(leaf)
                dist.recv(wire, rank)
                leaf.reshape(-1).view(torch.uint8).copy_(wire)
            kept.append(leaf)
        self.copies[step] = kept, told[1]


def _values(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _on_wire(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, where the process group can send them."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return tensor.reshape(-1).view(torch.uint8).to(device)


@dataclass
class _Recovery:
    """A rank's way through the generations of a job."""

    store: dist.Store
    rank: int
    world: int
    memory: _Memory
    peers: tuple[int, ...]
    backend: str
    timeout: float
    generation: int = 0
    fruitless: int = 0
    faults: int = 0
    buckets: dict[str, str] = field(default_factory=dict)

    def has_ended(self, store: dist.Store | None = None) -> bool:
        """Whether a fault of the generation is known."""
        return bool((store or self.store).check([f"fault/{self.generation}"]))

    def end(self, why: str) -> None:
        """Ends the generation for all ranks; the first reason stays."""
        self.store.compare_set(f"fault/{self.generation}", "", why)

    def join(self) -> list[HeldSteps]:
        """Joins the newest generation and waits for all ranks. RecoveryError if one does not come."""
        while self.has_ended():
            self.generation += 1
        key = f"joined/{self.generation}"
        if self.store.check([f"{key}/{self.rank}"]):
            self.end(f"rank {self.rank} ended and was started anew")
            return self.join()
        told = HeldSteps({step: self.memory.buckets[step] for step in self.memory.copies}, self.peers, self.fruitless)
        self.await_all(key, msgspec.json.encode(told).decode(), "did not come")
        raw = self.store.multi_get([f"{key}/{rank}" for rank in range(self.world)])
        return [msgspec.json.decode(text, type=HeldSteps) for text in raw]

    def await_all(self, key: str, value: str, what: str) -> None:
        """Says `value` under `key` and waits until all ranks have. RecoveryError after `timeout` seconds."""
        self.store.set(f"{key}/{self.rank}", value)
        count, until = self.store.add(f"{key}/count", 1), time.monotonic() + self.timeout
        while count < self.world:
            if self.has_ended():
                raise _EndedGeneration
            if time.monotonic() > until:
                away = [rank for rank in range(self.world) if not self.store.check([f"{key}/{rank}"])]
                who = ", ".join(map(str, away[:16])) or "some"
                raise RecoveryError(
                    f"ranks {who} {what} within {self.timeout:g} s. Start the job from its checkpoint;"
                    " `windtunnel fleet run --nodes N --rejoin` starts a rank that died anew by itself."
                )
            time.sleep(POLL_SECONDS)
            count = self.store.add(f"{key}/count", 0)

    def connect(self) -> list[tuple[int, str]]:
        """Makes the process group; its connections as descriptors with what they are."""
        before = _connections()
        own = _GenerationStore(dist.PrefixStore(f"group/{self.generation}", self.store))
        own.ended = self.has_ended
        limit = timedelta(seconds=CONNECT_SECONDS)
        own.set_timeout(limit)
        dist.init_process_group(self.backend, store=own, rank=self.rank, world_size=self.world, timeout=limit)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self.timeout), dist.group.WORLD)
        return [one for one in _connections() if one not in before]

    def exchange(self, joined: list[HeldSteps]) -> tuple[int | None, int | None]:
        """(step from which all go on or None, rank that sent this one the state or None), once those that lacked it have it."""
        step, sources = choose_step(joined)
        if step is None:
            self.buckets = {}
            return None, None
        for receiver, source in sources.items():
            if self.rank == source:
                self.memory.send(step, receiver)
            if self.rank == receiver:
                self.memory.receive(step, source)
        self.buckets = self.memory.buckets[step] = next(info.held[step] for info in joined if step in info.held)
        return step, sources.get(self.rank)


@dataclass
class _Watch:
    """Cuts the connections of a generation when it ends, so that a rank that waits in a collective leaves it."""

    recovery: _Recovery
    connections: list[tuple[int, str]] = field(default_factory=list)

    def __enter__(self) -> _Watch:
        self._over = Event()
        self._store = self.recovery.store.clone()  # a store answers one thread at a time
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with suppress(RuntimeError):  # the store is gone: the next fault will end this rank
            while not self._over.wait(LOOK_SECONDS):
                if self.recovery.has_ended(self._store):
                    self.cut()
                    return

    def cut(self) -> None:
        """Ends the calls of the group, of this rank and its peers. gloo's own abort waits until nobody refers to the group."""
        current = _connections()
        for handle, name in self.connections:
            if (handle, name) in current:
                with suppress(OSError), socket.socket(fileno=os.dup(handle)) as connection:
                    if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        connection.shutdown(socket.SHUT_RDWR)
        if self.recovery.backend != "gloo" and dist.is_initialized():
            dist.distributed_c10d._abort_process_group()


def _connections() -> list[tuple[int, str]]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if (where := os.readlink(f"/proc/self/fd/{name}")).startswith("socket:"):
                found.append((int(name), where))
    return found


def train_through_faults(
    connect: Callable[[], Step], state: dict[str, Any], steps: int, *, load: Callable[[], int] = lambda: 0, seed: int | None = None,
    every: int = 1, peers: Sequence[int] | None = None, retries: int = 3, backend: str | None = None, timeout: float = 300.0,
) -> int:  # fmt: skip
    """Runs `steps` steps of data-parallel training, and goes on bit-equal when a rank raises, or dies and is started anew. Returns
    the number of faults that this rank went through.

    Every rank calls it instead of `init_process_group`, with torch's `env://` variables; the process group stays when it returns.
    `connect`: called with each new process group; makes what belongs to the group, such as a DDP over the model, and returns the
    function of a step, which gets the number of steps before it. Nothing else may keep such objects. `state`: as for a
    `Checkpointer`; modules and optimizers that all ranks hold alike, and all that a step changes. `load`: called if no rank has the
    state in memory; puts the newest checkpoint into `state` and returns its number of steps. `seed`: random numbers of a step
    follow from it, the step and the rank. `every`: steps between two copies into host memory; those since are repeated after a
    fault. `peers`: ranks with this one's state; default all. `retries`: faults in a row without a step until ranks give up.
    `timeout`: seconds to wait for a rank, or in a collective.

    SpecError for a state that it cannot keep; RecoveryError if the state of a lost rank has no replica, or a rank does not come
    back. After `retries`, the error of the step itself on the rank that raised it.
    """
    wrong = [key for key, value in state.items() if isinstance(value, PerRank)]
    if wrong:
        raise SpecError(
            "state", f"PerRank {wrong[0]}", "state that peers hold too", "Give seed=N: random numbers follow from the step."
        )
    store, rank, world = next(iter(dist.rendezvous("env://", timeout=timedelta(seconds=timeout))))
    same = tuple(sorted(peers)) if peers is not None else tuple(range(world))
    if rank not in same or every < 1:
        raise SpecError(
            "peers" if rank not in same else "every", same if every > 0 else every, "ranks with this one; 1 or more steps"
        )
    chosen = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    memory = _Memory(state, 1 if len(same) == world else 2)
    recovery = _Recovery(dist.PrefixStore("recovery", store), rank, world, memory, same, chosen, timeout)
    raised: BaseException | None = None
    while True:
        try:
            joined = recovery.join()
            if max(info.fruitless for info in joined) > retries:
                raise raised or RecoveryError(
                    f"{retries + 1} faults in a row, and no step between them. See the other ranks' logs."
                )
            choose_step(joined)  # a lost shard is said by all ranks, before they connect
            raised = None
            _run_generation(recovery, joined, connect, steps, load, seed, every)
            return recovery.faults
        except _EndedGeneration:
            pass
        except RecoveryError:
            raise
        except Exception as error:
            if error is raised:
                raise
            raised = error
            traceback.print_exception(error)
            traceback.clear_frames(error.__traceback__)  # they refer to the process group
        recovery.fruitless += 1
        recovery.faults += 1
        if dist.is_initialized():
            dist.destroy_process_group()


def _run_generation(
    recovery: _Recovery, joined: list[HeldSteps], connect: Callable[[], Step], steps: int, load: Callable[[], int],
    seed: int | None, every: int,
) -> None:  # fmt: skip
    """Steps until the last one is done on all ranks. Raises what a step raises, or what a lost peer causes."""
    began = time.monotonic()
    memory, watch = recovery.memory, _Watch(recovery)
    try:
        watch.connections = recovery.connect()
        with watch:
            found, source = recovery.exchange(joined)
            run_step = connect()
            if found is None:
                number = load()
                memory.store(number, {})
            else:
                number = found
                memory.restore(number)
                arrange_buckets(memory.state, recovery.buckets)
            _tell_return(recovery, joined, number, source, began)
            first = number
            while number < steps:
                if seed is not None:
                    drawn = ((seed * 1_000_003 + number) * recovery.world + recovery.rank) % (1 << 63)
                    random.seed(drawn)
                    torch.manual_seed(drawn)
                    if "numpy" in sys.modules:
                        sys.modules["numpy"].random.seed(drawn % (1 << 32))
                run_step(number)
                number += 1
                if number - first == 1:
                    recovery.buckets = bucket_layouts(wrapped_modules(memory.state))
                recovery.fruitless = 0
                if number % every == 0 or number == steps:
                    memory.store(number, recovery.buckets)
            recovery.await_all(f"done/{recovery.generation}", "", "did not finish")
    except Exception as error:
        is_own = not recovery.has_ended()
        recovery.end(f"rank {recovery.rank} raised {describe(error)}")  # before the others lose their connections to this one
        watch.cut()
        if dist.is_initialized():
            for module in wrapped_modules(memory.state).values():
                module.reducer = None  # it refers to the group, and must not be taken for that of the next DDP
        if not is_own:
            raise _EndedGeneration from None
        raise


def _tell_return(recovery: _Recovery, joined: list[HeldSteps], step: int, source: int | None, began: float) -> None:
    """Says on rank 0, and on a rank that got its state, what the generation before ended with; tells the driver what was loaded."""
    if source is not None:
        append_event(recovery.rank, "load", step, seconds=time.monotonic() - began, source=f"memory of rank {source}")
    if recovery.generation == 0 or (recovery.rank != 0 and source is None):
        return
    anew = ", ".join(str(rank) for rank, info in enumerate(joined) if not info.held)
    why = f"started anew: rank {anew}" if anew else recovery.store.get(f"fault/{recovery.generation - 1}").decode()
    whence = "" if source is None else f", with the state of rank {source}"
    tell(f"{why}; rank {recovery.rank} goes on after step {step:,}{whence}, {time.monotonic() - began:.2f} s after all had come")
