"""Creates the process groups of a mesh in order, without global barriers, over a choice of stores.

| file | what it does |
|---|---|
| `layout.py` | names and sizes of axes → the ranks of every group, and the number of store operations in closed form. No torch |
| `start_law.py` | measured starts → seconds of a larger job. No torch |
| `store.py` | the registry of stores, one that counts, and one of a node, whose leader uses the global one |
| `groups.py` | `init_mesh`, a drop-in for `init_process_group` and `new_group` of a mesh |
| `measure.py` | starts a mesh with real processes, counted and timed |
"""
