"""The modes, one file each; `rl/mode.py` lists them."""
