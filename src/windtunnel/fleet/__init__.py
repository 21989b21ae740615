"""Beside a running job: each rank times itself, a collector gathers the times, and findings say what is wrong.

| room | what it does |
|---|---|
| `launch/` | `windtunnel fleet run -- torchrun …`: starts an unchanged training script under the monitor |
| `watch/` | in the training process: times sections and calls, writes them into the rank's ring. Imports torch and nothing heavy |
| `ship/` | one process a node: reads the rings of its ranks and sends them to the collector |
| `collect/` | one process a job: takes batches, stores them, answers questions |
| `findings/` | sections → who is slow, which link, who hangs, why the rate declines; the clocks of the nodes on one |
| `startup/` | process groups made in order, without global barriers, over a store of choice |
| `loading/` | one reader a node, its batches shared by the node's ranks |
| `batch.py` | what a node sends to the collector |
| `rings.py` | all rings of a run as one table of sections |
| `ring.py` | the file that a rank writes its records into, and that outlives it |

Nothing here imports the simulator; what a run should have been comes from the rooms above (`windtunnel.runs`).
"""
