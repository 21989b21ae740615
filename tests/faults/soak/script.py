"""A rank in scaled time, without torch: each step sleeps and meets all ranks, and rank 0 writes a checkpoint every few steps.

It knows of the driver what any script does: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. It writes its own ring, as `fleet.watch`
does for a script with torch, and its checkpoints' events, as `fleet.checkpoint` does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.watch.session import BeatThread
from windtunnel.records.sections import Section

_STEP = struct.Struct("<q")


class Ranks:
    """The connections among ranks: rank 0 has one to each, the others one to rank 0."""

    def __init__(self, rank: int, world: int, address: tuple[str, int]) -> None:
        self.first = rank == 0
        if self.first:
            with socket.create_server(address) as listening:
                self.peers = [listening.accept()[0] for _ in range(world - 1)]
        else:
            self.peers = [_connected(address)]
        for peer in self.peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def agree(self, value: int = 0) -> int:
        """All ranks come, then all go on with rank 0's value. A peer that is gone ends this rank, as gloo does."""
        try:
            if not self.first:
                self.peers[0].sendall(_STEP.pack(value))
                return _read(self.peers[0])
            for peer in self.peers:
                _read(peer)
            for peer in self.peers:
                peer.sendall(_STEP.pack(value))
        except OSError as error:
            print(f"Connection closed by peer: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        return value


def _connected(address: tuple[str, int]) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            time.sleep(0.01)


def _read(peer: socket.socket) -> int:
    raw = b""
    while len(raw) < _STEP.size:
        more = peer.recv(_STEP.size - len(raw))
        if not more:
            raise ConnectionError("end of the stream")
        raw += more
    return int(_STEP.unpack(raw)[0])


def _nan(number: int, frame: object) -> None:
    os.write(2, b"loss=nan\n")
    os._exit(3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--step", type=float, required=True, help="seconds")
    parser.add_argument("--apart", type=int, required=True, help="steps between checkpoints")
    parser.add_argument("--save", type=float, required=True, help="seconds that a save takes")
    given = parser.parse_args()
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR2, _nan)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = Ranks(rank, world, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    ring = RingWriter(ring_path(given.folder, rank), given.folder.name, rank, world, rows=4096)
    beat = BeatThread(ring, 0.2)
    _train(given, ranks, ring, rank)
    beat.stop()


def _train(given: argparse.Namespace, ranks: Ranks, ring: RingWriter, rank: int) -> None:
    events, kept, begun = given.folder / f"checkpoints-{rank}.jsonl", given.folder / "checkpoint", time.time()
    step = ranks.agree(int(kept.read_text(encoding="ascii")) if rank == 0 and kept.exists() else 0)
    if step:
        _tell(events, {"event": "load", "step": step, "unix": time.time(), "seconds": time.time() - begun})
    done = 0
    while True:
        now = ring.clock()
        time.sleep(given.step)
        ranks.agree()
        step, done = step + 1, done + 1
        ring.write(Section.STEP, done, now, ring.clock() - now, ring.clock() - now, state=RowState.DONE)
        ring.at_step(done)
        if step % given.apart == 0:
            if rank == 0:
                begun = time.time()
                time.sleep(given.save)
                _put(kept, step)
                _tell(events, {"event": "save", "step": step, "unix": time.time(), "blocking_seconds": time.time() - begun})
            ranks.agree()


def _put(path: Path, step: int) -> None:
    new = path.with_suffix(".new")
    with new.open("w", encoding="ascii") as file:
        file.write(str(step))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _tell(path: Path, line: dict[str, object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
