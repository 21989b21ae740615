"""Data loading with one reader per node; the ranks of a node share its batches in memory.

| file | what it does |
|---|---|
| `workers.py` | worker processes: indices → a batch in a slot, as bytes whose arrays are used in place; the order of samples |
| `reader.py` | the node's reader: distributes jobs to workers and batches to ranks |
| `loader.py` | `SharedLoader`, the iterator of a rank |

Slots are memfds passed over a Unix socket. They have no name in any file system, so nothing is left after the last process has
ended.
"""
