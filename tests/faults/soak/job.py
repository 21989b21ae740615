"""A job of real processes in scaled time: each step sleeps and meets all ranks, and rank 0 writes checkpoints.

`python -S job.py FOLDER RANK WORLD STEP_SECONDS STEPS_APART SAVE_SECONDS`. Only modules that start fast are imported.
"""

import json
import os
import signal
import socket
import struct
import sys
import time


def main() -> None:
    folder, rank, world, step_seconds, apart, save_seconds = (
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]),
    )  # fmt: skip
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR2, lambda *_: (os.write(2, b"loss is nan\n"), os._exit(3)))
    peers = _meet(os.path.join(folder, "meet"), rank, world)
    joined = time.time()
    step = _load(folder)
    progress = os.open(os.path.join(folder, f"progress-{rank}"), os.O_RDWR | os.O_CREAT)
    _agree(peers, rank)
    if rank == 0:
        _put(os.path.join(folder, "ready"), {"joined": joined, "loaded": time.time(), "step": step})
    while True:
        time.sleep(step_seconds)
        _agree(peers, rank)
        step += 1
        os.pwrite(progress, struct.pack("q", step), 0)
        if step % apart == 0:
            if rank == 0:
                begun = time.time()
                time.sleep(save_seconds)
                _put(os.path.join(folder, "checkpoint"), {"step": step, "unix": time.time()})
                line = {"event": "save", "step": step, "unix": time.time(), "blocking_seconds": time.time() - begun}
                with open(os.path.join(folder, "checkpoints-0.jsonl"), "a") as events:
                    events.write(json.dumps(line) + "\n")
            _agree(peers, rank)


def _meet(path: str, rank: int, world: int) -> list[socket.socket]:
    """Rank 0's connections to all others, or another rank's to it."""
    if rank == 0:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(world)
        return [listening.accept()[0] for _ in range(world - 1)]
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(path)
            return [peer]
        except OSError:
            peer.close()
            time.sleep(0.005)


def _agree(peers: list[socket.socket], rank: int) -> None:
    """All ranks come, then all go on; a lost rank ends the others with status 1."""
    try:
        if rank == 0:
            for peer in peers:
                _one(peer)
            for peer in peers:
                peer.sendall(b"g")
        else:
            peers[0].sendall(b"c")
            _one(peers[0])
    except OSError:
        os._exit(1)


def _one(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError


def _load(folder: str) -> int:
    try:
        with open(os.path.join(folder, "checkpoint")) as file:
            return int(json.load(file)["step"])
    except FileNotFoundError:
        return 0


def _put(path: str, value: object) -> None:
    with open(path + ".new", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


if __name__ == "__main__":
    main()
