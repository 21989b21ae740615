"""The message from a shipper to the collector: rows, open rows, summaries, heartbeats and text of a node's ranks, in one compressed
body.
"""

from __future__ import annotations

from windtunnel.fleet.batch.columns import OPEN_ROWS, ROWS, SUMMARIES, BatchTable, summarise, table_of_rows
from windtunnel.fleet.batch.message import Batch, BatchHead, decode, encode, head_of
from windtunnel.fleet.batch.meta import BatchMeta, RankBeat, RingIdentity, Stamps

__all__ = [
    "OPEN_ROWS",
    "ROWS",
    "SUMMARIES",
    "Batch",
    "BatchHead",
    "BatchMeta",
    "RankBeat",
    "RingIdentity",
    "Stamps",
    "BatchTable",
    "decode",
    "encode",
    "head_of",
    "summarise",
    "table_of_rows",
]
