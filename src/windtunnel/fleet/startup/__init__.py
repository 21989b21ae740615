"""Process groups of a mesh made in order, without global barriers, over a store of choice.

| file | what it does |
|---|---|
| `layout.py` | names and sizes of axes → the ranks of every group. No torch |
| `counts.py` | store operations of a mesh in closed form, for torch's own path and for this one. No torch |
| `law.py` | measured starts → seconds of a larger job. No torch |
| `counting.py` | a store that counts what is asked of it |
| `redis_store.py` | a `torch.distributed.Store` over Redis |
| `node_store.py` | one local store a node; only node leaders talk to the global one |
| `store.py` | the registry of stores |
| `gather.py` | holds back what each group's backend writes, so that a rank publishes and reads once for all groups |
| `groups.py` | `init_mesh`, the drop-in for `init_process_group` and `new_group` of a mesh |
| `measure.py` | real processes that start a mesh and are counted and timed |
"""
