"""Scripts as users write them, with one thing wrong each, under `windtunnel fleet run`: is it named first, with its rank?

`listed.py` has the cases, `scripts/` the training scripts, `drive.py` runs one. `python -m tests.faults.causes` runs all.
"""
