"""The flush process of a rank: owns its staged memory, writes it to storage, acknowledges, and, for rank 0, commits.

`python -m windtunnel.fleet.checkpoint.flush CONTROL_FD PREFIX RANK LINGER UMASK [NEIGHBOUR]`. It survives the rank: it finishes the
staged save, then keeps the memory for the next attempt of the job, for LINGER seconds.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.checkpoint.commit import Save, SaveError, write_event
from windtunnel.fleet.checkpoint.manifest import ShardFile
from windtunnel.fleet.checkpoint.memory import (
    BufferedFile,
    Neighbour,
    SharedBuffers,
    is_same_user,
    packet_socket,
    receive_message,
    send_copy,
    send_message,
)
from windtunnel.fleet.checkpoint.stores.local_folder import storage_at
from windtunnel.fleet.checkpoint.stores.storage import StepStorage

LOOK_SECONDS = 5.0
"""Interval at which a process without a trainer asks whether its memory is still of use."""


class Flusher:
    """Executes orders of its trainer from `control`, and answers later attempts at the abstract socket `socket_name`."""

    def __init__(
        self, control: socket.socket, socket_name: str, rank: int, linger: float, neighbour: Neighbour | None = None
    ) -> None:
        self.control, self.rank, self.linger, self.neighbour = control, rank, linger, neighbour
        self.held = SharedBuffers()
        self.listener = packet_socket()
        self.listener.bind("\0" + socket_name)
        self.listener.listen(64)
        self.next_node: tuple[str, int] | None = None
        self.served: tuple[StepStorage, str] | None = None
        self._is_first = True  # no save of this process yet

    def serve(self) -> None:
        """Runs until the trainer ends it, or until the trainer is gone and nobody needs its memory any more."""
        end = float("inf")
        trainer: socket.socket | None = self.control
        look = 0.0
        while time.monotonic() < end:
            watched = [self.listener] + ([trainer] if trainer else [])
            ready, _, _ = select.select(watched, [], [], 1.0)
            if trainer in ready and trainer is not None:
                heard = _receive(trainer)
                if heard is None:
                    trainer, end = None, time.monotonic() + self.linger
                    if self.served is not None:
                        with suppress(OSError):
                            self.served[0].mark_gone(self.served[1], self.rank)
                elif heard[0]["do"] == "end":
                    return
                else:
                    self.do(*heard)
            if self.listener in ready and not self._answer_later_attempt():
                return
            if trainer is None and time.monotonic() >= look:
                look = time.monotonic() + LOOK_SECONDS
                if self._is_superseded():
                    return

    def _is_superseded(self) -> bool:
        """Whether nobody can need this memory any more: it holds no step, or another attempt has committed one as new as the newest
        in it. Asked once the trainer is gone.
        """
        lists = [self.held, *([self.neighbour.held] if self.neighbour else [])]
        steps = [one["step"] for held in lists for one in held.describe()]
        if self.served is None or not steps:
            return not steps
        storage, attempt = self.served
        with suppress(OSError, ValueError, WindtunnelError):
            return storage.owner() not in ("", attempt) and storage.latest() >= max(steps)
        return False

    def do(self, message: dict[str, Any], fds: list[int]) -> None:
        """Executes one order of the trainer."""
        if message["do"] == "slots":
            self.held.slots(fds, message["bytes"])
        elif message["do"] == "serves":
            self.served = (storage_at(message["folder"]), message["attempt"])
        elif message["do"] == "neighbour":
            self.next_node = (message["host"], message["port"])
        else:
            self._flush_slot(message)

    def _flush_slot(self, order: dict[str, Any]) -> None:
        time.sleep(order["rest"])  # as long as this rank's copy took: other ranks still copy and need the cores
        began = time.monotonic()
        storage = storage_at(order["folder"])
        save = storage.save_of(order["step"], order["attempt"], order["world"], order["version"], order["topology"])
        self._remove_leftovers(storage, save, order)
        shards, error = self._write_shards(storage, save, order)
        seconds = time.monotonic() - began
        report = {"slot": order["slot"], "step": save.step, "bytes": sum(one.bytes for one in shards), "error": error}
        if self.rank == 0:
            self._send(
                {
                    "did": self._commit_step(storage, save, order, error),
                    "why": self.why,
                    **report,
                    "seconds": time.monotonic() - began,
                }
            )
        elif error:
            write_event(self.rank, "failed", save.step, seconds=seconds, why=error)
        if self.next_node is not None and self.neighbour is not None and not error:
            with suppress(OSError):
                send_copy(self.next_node, self.neighbour.token, save.attempt, save.step, self.held.files(order["slot"]))
        self._send({"did": "free", **report, "seconds": seconds})

    def _remove_leftovers(self, storage: StepStorage, save: Save, order: dict[str, Any]) -> None:
        """Makes room before a save. Rank 0's process knows that every earlier save of its attempt has ended; the others know of
        those whose failure their trainer was told.
        """
        failed = save.step - 1 if self.rank == 0 else order["failed"]
        if self._is_first or failed >= 0:
            storage.remove_leftovers(save.attempt, self.rank, failed, self._is_first)
        self._is_first = False

    def _write_shards(self, storage: StepStorage, save: Save, order: dict[str, Any]) -> tuple[list[ShardFile], str]:
        """Writes and acknowledges this rank's shards; returns them, or the error."""
        shards: list[ShardFile] = []
        try:
            storage.begin(save)
            for name, offset, size in order["files"]:
                digest = storage.write(save, name, self.held.view(order["slot"], offset, size))
                shards.append(ShardFile(name, size, digest, self.rank))
            offsets = [offset for _, offset, _ in order["files"]]
            files = [BufferedFile(one.name, at, one.bytes, one.hash) for one, at in zip(shards, offsets, strict=True)]
            self.held.set_files(order["slot"], save.attempt, save.step, files)
            storage.acknowledge(save, self.rank, shards)
        except OSError as error:
            why = f"{type(error).__name__}: {error}"
            for name, _, _ in order["files"]:  # frees space for the acknowledgement on a full disk
                with suppress(OSError):
                    storage.unwrite(save, name)
            with suppress(OSError):  # without an acknowledgement the writer waits until its timeout
                storage.acknowledge(save, self.rank, [], why)
            return [], why
        return shards, ""

    def _commit_step(self, storage: StepStorage, save: Save, order: dict[str, Any], error: str) -> str:
        """Returns committed, already or failed; the reason of a failure is in `why`. Only in rank 0's process."""
        began, self.why = time.monotonic(), error
        try:
            if error:
                raise SaveError(save.where, error, "all ranks to write their shards")
            shards = storage.collect(save, order["within"])
            new = storage.commit(save, shards)
        except (OSError, WindtunnelError) as problem:
            self.why = str(problem.got) if isinstance(problem, SaveError) else f"{type(problem).__name__}: {problem}"
            storage.abandon(save)
            write_event(0, "failed", save.step, seconds=time.monotonic() - began, why=self.why)
            return "failed"
        with suppress(OSError, WindtunnelError):  # the step is committed; deletion is retried after the next save
            storage.collect_garbage(order["keep"], order["interval"], save.attempt, [save.step])
        size = sum(one.bytes for one in shards)
        write_event(0, "commit", save.step, seconds=time.monotonic() - began, bytes=size)
        return "committed" if new else "already"

    why = ""

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the trainer was killed
            send_message(self.control, message)

    def _answer_later_attempt(self) -> bool:
        """Answers one request of a later attempt: list the buffers, hand over a buffer, or exit. False to exit."""
        connection, _ = self.listener.accept()
        with connection:
            connection.settimeout(10.0)
            if not is_same_user(connection):
                return True
            with suppress(OSError, ValueError, LookupError, TypeError):  # a message of another release
                while (heard := receive_message(connection)) is not None:
                    if heard[0]["do"] == "retire":
                        return False
                    lists = [self.held, *([self.neighbour.held] if self.neighbour else [])]
                    if heard[0]["do"] == "held":
                        send_message(
                            connection, {"held": [{**one, "list": at} for at, held in enumerate(lists) for one in held.describe()]}
                        )
                    else:
                        send_message(connection, {}, (lists[heard[0]["list"]].descriptor(heard[0]["slot"]),))
        return True


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    try:
        return receive_message(connection)
    except OSError:
        return None


def main(arguments: list[str]) -> int:
    control = socket.socket(fileno=int(arguments[0]))
    os.umask(int(arguments[4]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the trainer
    os.nice(10)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # executing an order must not preempt the trainer
    neighbour = Neighbour(os.environ.pop("WINDTUNNEL_CHECKPOINT_TOKEN")) if len(arguments) > 5 else None
    flusher = Flusher(control, arguments[1], int(arguments[2]), float(arguments[3]), neighbour)
    send_message(control, {"did": "started", "port": neighbour.listen(arguments[5]) if neighbour else 0})
    flusher.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
