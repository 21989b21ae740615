"""Staging buffers and flush process of a rank: finds a free buffer, records the result of each save, replaces a killed process."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import Any

import torch

from windtunnel.base.version import __version__
from windtunnel.fleet.checkpoint.commit import Save, write_event
from windtunnel.fleet.checkpoint.flush_process import FlushProcess
from windtunnel.fleet.checkpoint.options import CheckpointOptions
from windtunnel.fleet.checkpoint.rank_group import RankGroup
from windtunnel.fleet.checkpoint.staging import SLOTS, PieceCopier, ShardLayout, Slot
from windtunnel.fleet.checkpoint.stores.storage import StepStorage

KILLED = "its flush process was killed"
MOST_REST = 1.0
"""Longest time that a flush process waits before it writes, in seconds."""


class FlushManager:
    """Buffers and flush process of one rank. `failed`: steps with reasons; `committed`: the newest step, known on rank 0 only."""

    def __init__(
        self,
        ranks: RankGroup,
        options: CheckpointOptions,
        socket_name: str,
        node: str,
        token: str,
        storage: StepStorage,
        attempt: str,
    ) -> None:
        self.ranks, self.options, self._socket_name, self._token = ranks, options, socket_name, token
        self._storage, self._attempt = storage, attempt
        self.failed: dict[int, str] = {}
        self.committed: int | None = None
        self._copier = PieceCopier(torch.get_num_threads())
        self._version = __version__
        self._slots: list[Slot] = []
        self._layout: ShardLayout | None = None
        self._pending: dict[int, Save] = {}
        self._own_address = _own_address() if options.neighbour else None
        self._process = self._start_process()
        self._next: tuple[str, int] | None = None
        if options.neighbour:
            self._next = _next_node(ranks.all_gather((node, self._own_address, self._process.port)), ranks.rank)
            self._tell_neighbour()

    def _start_process(self) -> FlushProcess:
        socket_name = f"{self._socket_name}-{secrets.token_hex(4)}"  # nobody else can have taken it
        made = FlushProcess(socket_name, self.ranks.rank, self.options.linger, self.options.umask, self._own_address, self._token)
        with suppress(OSError):
            made.send({"do": "serves", "folder": self._storage.where, "attempt": self._attempt})
        return made

    def _tell_neighbour(self) -> None:
        if self._next is not None:
            self._send_order({"do": "neighbour", "host": self._next[0], "port": self._next[1]})

    def set_layout(self, layout: ShardLayout) -> None:
        """Allocates buffers for a layout, touches all their pages, and passes them to the process. No save may be pending."""
        for slot in self._slots:
            slot.close()
        self._layout = layout
        self._slots = [Slot(layout, self._copier) for _ in range(SLOTS)]
        self._send_slots()

    def _send_slots(self) -> None:
        if self._layout is not None:
            self._send_order({"do": "slots", "bytes": self._layout.total}, tuple(slot.descriptor for slot in self._slots))

    def free_slot(self) -> int | None:
        """Number of a buffer that is not being written, or None."""
        self._process_messages(0)
        return next((at for at in range(len(self._slots)) if at not in self._pending), None)

    def stage(self, step: int, layout: ShardLayout, flat: dict[str, Any], objects: list[bytes], attempt: str,
              topology: dict[str, Any], failed: int = -1) -> None:  # fmt: skip
        """Copies the state into a buffer, waiting for a free one if necessary, and orders the process to write it. `failed`: the
        newest step that rank 0 knows to have failed, whose remains the process removes first; -1 for none."""
        while (at := self.free_slot()) is None:
            self._process_messages(1.0)
        began = time.perf_counter()
        self._slots[at].stage(layout, flat, objects)
        rest = min(time.perf_counter() - began, MOST_REST)
        save = self._storage.save_of(step, attempt, self.ranks.world, self._version, topology)
        self._pending[at] = save
        order = {"do": "flush", "slot": at, "step": step, "files": layout.files(), "folder": self._storage.where,
                 "attempt": attempt, "world": save.world, "version": save.version, "topology": topology,
                 "within": self.options.within, "keep": self.options.keep, "interval": self.options.interval, "rest": rest,
                 "failed": failed}  # fmt: skip
        self._send_order(order)

    def _send_order(self, order: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        with suppress(OSError):  # a process that was killed is found by `_process_messages`
            self._process.send(order, fds)

    def _process_messages(self, wait: float) -> None:
        for message in self._process.receive_all(wait):
            if message["did"] == "free":
                self._pending.pop(message["slot"], None)
                if message["error"]:
                    self.failed[message["step"]] = message["error"]
            elif message["did"] == "failed":
                self.failed[message["step"]] = message["why"]
            else:
                self.committed = message["step"]
        if not self._process.alive:
            self._restart_process()

    def _restart_process(self) -> None:
        """Replaces a killed process. The saves that it was writing have failed, and the writer is informed at once."""
        self._process.process.wait()
        for save in self._pending.values():
            self.failed[save.step] = KILLED
            write_event(self.ranks.rank, "failed", save.step, why=KILLED)
            with suppress(OSError):
                if not self._storage.is_committed(save):
                    self._storage.begin(save)
                    self._storage.acknowledge(save, self.ranks.rank, [], KILLED)
        self._pending.clear()
        self._process = self._start_process()
        self._send_slots()
        self._tell_neighbour()

    def drain(self) -> None:
        """Waits until no save is pending."""
        self._process_messages(0)
        while self._pending:
            self._process_messages(1.0)

    def close(self) -> None:
        """Ends the process and releases the buffers."""
        self._process.end()
        for slot in self._slots:
            slot.close()
        self._slots = []
        self._copier.close()


def _own_address() -> str:
    """The address of this machine that others reach: that of the interface towards MASTER_ADDR."""
    import os
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ.get("MASTER_ADDR", "127.0.0.1"), 9))
        return str(probe.getsockname()[0])


def _next_node(places: list[tuple[str, str, int]], rank: int) -> tuple[str, int] | None:
    """Where the rank at the same position on the next node accepts copies; None if there is only one node."""
    nodes = list(dict.fromkeys(node for node, _, _ in places))
    if len(nodes) < 2:
        return None
    mine = places[rank][0]
    place = [one for one, (node, _, _) in enumerate(places) if node == mine].index(rank)
    there = [(host, port) for node, host, port in places if node == nodes[(nodes.index(mine) + 1) % len(nodes)]]
    return there[place % len(there)]
