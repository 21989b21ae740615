"""Scripts as users write them, with one thing wrong each, watched by `windtunnel fleet run`: is the cause named first, with its rank?

`listed.py` has the cases, `scripts/` the training scripts, `drive.py` runs one. `python -m tests.faults.causes` runs all.
"""
