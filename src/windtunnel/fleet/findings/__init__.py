"""Analysis of recorded sections: slow ranks, slow links, hangs, causes of a declining rate. Pure functions: nothing here reads a
clock or a process.

`steps.py` builds a table of ranks and steps; `slow_ranks.py`, `slow_links.py` and `decline.py` evaluate it; `hang.py` evaluates
what ranks were doing when nothing moved. Each returns `Finding`s: what, who, how certain, on what evidence, and which alternatives
are excluded.
"""
