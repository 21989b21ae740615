"""What sections say: who is slow, which link, who hangs, why the rate declines. Nothing here asks a clock or a process.

`steps.py` makes a table of ranks and steps; `slow.py`, `link.py` and `decline.py` judge it; `hang.py` judges what ranks were in
when nothing moved. Each returns `Finding`s: what, who, how sure, on what evidence, and what else it is not.
"""
