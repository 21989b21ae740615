"""One reader a node: its batches lie in memory that the node's ranks share.

| file | what it does |
|---|---|
| `order.py` | which samples form which batch: shuffled by epoch, the same on every node |
| `place.py` | where a rank sits: its share of the data, and the ranks of its node |
| `parcel.py` | a batch as bytes whose arrays are used where they lie; exceptions as bytes |
| `making.py` | worker processes: indices → a batch in a slot |
| `reader.py` | the node's reader: hands work to the workers and batches to the ranks |
| `loader.py` | `SharedLoader`, what a rank iterates over |

Slots are memfds that are passed over a Unix socket. They have no name in any file system, so nothing is left of them once the last
process is gone.
"""
