"""The script `ends.py` in four processes that `multiprocessing` starts, by METHOD, as scripts without a launcher do it."""

import multiprocessing
import os
import runpy
import socket
import sys

import torch  # noqa: F401 - before the fork, as in scripts


def train(rank, ranks, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ends.py"))


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    context = multiprocessing.get_context(os.environ["METHOD"])
    processes = [context.Process(target=train, args=(rank, 4, port)) for rank in range(4)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(int(any(one.exitcode for one in processes)))
