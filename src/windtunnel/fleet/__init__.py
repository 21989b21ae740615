"""Monitoring and operation of a running training job: per-rank timing, collection, findings, recovery, checkpoints, data loading.

| room | what it does |
|---|---|
| `launch/` | `windtunnel fleet run -- torchrun …`: starts an unchanged training script under the monitor |
| `watch/` | in the training process: times sections and calls, writes them into the rank's ring; imports torch, nothing heavy |
| `ship/` | one process per node: reads the rings of its ranks and sends them to the collector |
| `collect/` | one process per job: stores batches durably, compacts them, answers queries |
| `findings/` | sections → slow ranks, slow links, hangs, causes of a decline; aligns the clocks of the nodes |
| `driver/` | one process per job: detects faults by rules, restarts the job by a policy, keeps an incident log |
| `agent/` | one process per node: starts and ends ranks for the driver and reports their state |
| `engines/` | start agents: local processes, Slurm, Ray; manifests for Kubernetes |
| `diagnose/` | self-tests of a node, a pair of nodes or a group; bisection to find bad nodes |
| `checkpoint/` | two-stage checkpoints: a copy into host memory, then written and committed in the background |
| `loading/` | one data reader per node; its ranks share the batches in memory |
| `startup/` | process groups of a mesh without global barriers, over TCP, Redis or hierarchical stores |
| `batch/` | the message that a shipper sends to the collector |
| `wire/` | messages and encrypted connections between driver and agents |
| `api.py` | `windtunnel fleet` as functions; `__init__.pyi` lists them with the classes for training scripts |
| `recovery.py` | steps that go on through faults of a rank, from a peer's memory |
| `sources.py` | the records of a run wherever they are, on one clock |
| `monitor.py` | periodic check of a running job; raises alarms |
| `log_watch.py`, `device_watch.py`, `dumps.py` | alarms from lines of a job and from counters; dumps of ranks that hang |
| `starting.py` | ranks that have begun and have no records yet, and whether a process works |
| `recorded.py`, `query_results.py` | a run read from rings, a collector's folder or over HTTP; the records that queries return |
| `stacks.py` | Python stacks of hanging processes |
| `rings.py`, `ring.py` | all rings of a run as one table; the memory-mapped file of a rank's last records |
| `event_log.py` | what a rank tells of its checkpoints |
| `disk.py` | durable writes |

Nothing here imports the simulator. Comparisons with a prediction are in the rooms above (`windtunnel.runs`).

Names are imported on first use, so that `import windtunnel.fleet` costs a training process nothing. `run`, `driver` and `ship` stay
on the command line: they are the processes beside a job, take over signals, and end as the job does. `serve` starts a collector in
this process, and `NodeShipper` is what `ship` runs.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
