"""Creates the process groups of a mesh in order, without global barriers, over a choice of stores.

| file | what it does |
|---|---|
| `layout.py` | names and sizes of axes → the ranks of every group. No torch |
| `operation_counts.py` | number of store operations for a mesh in closed form, for torch's own path and for this one. No torch |
| `start_law.py` | measured starts → seconds of a larger job. No torch |
| `counting_store.py` | a store that counts its operations |
| `redis_store.py` | a `torch.distributed.Store` over Redis |
| `node_store.py` | one local store per node; only node leaders use the global one |
| `store.py` | the registry of stores |
| `address_exchange.py` | collects what each group's backend writes, so that a rank publishes and reads once for all groups |
| `groups.py` | `init_mesh`, a drop-in for `init_process_group` and `new_group` of a mesh |
| `measure.py` | starts a mesh with real processes, counted and timed |
"""
