"""`python -m windtunnel.fleet.collect.answer_process FD`: answers questions about a run, one after the other, until its collector
closes the socket FD. The first message on the socket says which run.

Questions have processes of their own so that none of them can hold the collector up: a question that takes too long is ended by
ending its process, whatever it does, and reading a large answer costs the process that takes batches nothing.

A message is 4 bytes of length, lowest first, and JSON. An answer is 8 bytes of length of the body, JSON of status and media type
as a message, and the body.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.fleet.collect.answers import QuestionReply, answer_question
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.store import RunStore
from windtunnel.fleet.wire.sockets import read_exactly

SIZE, BODY = struct.Struct("<I"), struct.Struct("<Q")
READY = b"\n"
"""What comes first, once questions can be answered."""
_NICE = 5
_PR_SET_PDEATHSIG = 1


def message(value: Any) -> bytes:
    """`value` as a message."""
    raw = msgspec.json.encode(value)
    return SIZE.pack(len(raw)) + raw


def main(arguments: list[str]) -> int:
    """Answers until the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the collector ends this process
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.nice(_NICE)
    link = socket.socket(fileno=int(arguments[0]))
    told = _read_message(link)
    if told is None or os.getppid() != told["parent"]:
        return 0
    store = RunStore(Path(told["folder"]), told["db"])
    policy = CollectPolicy(**told["policy"])
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401  # now: the time for this is not a question's

    link.sendall(READY)
    while (asked := _read_message(link)) is not None:
        try:
            found = answer_question(store, policy, asked["name"], asked["query"])
        except Exception as error:
            print(f"question {asked['name']}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            found = QuestionReply(500, "application/json", msgspec.json.encode({"error": f"{type(error).__name__}: {error}"}))
        link.sendall(BODY.pack(len(found.body)) + message({"status": found.status, "media": found.media}))
        link.sendall(found.body)
    return 0


def _read_message(link: socket.socket) -> dict[str, Any] | None:
    """The next message; None once the collector has closed the socket."""
    try:
        raw = read_exactly(link, SIZE.unpack(read_exactly(link, SIZE.size))[0])
    except ConnectionError:
        return None
    return msgspec.json.decode(raw, type=dict[str, Any])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
