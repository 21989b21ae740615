"""What a type checker has to refuse in a user's script: names that are imported on first use have their types.

`make lint` checks it. An error that is not found any more is an ignore too many there, which is an error. Nobody imports this file.
"""

from __future__ import annotations

import windtunnel as wt

number: int = wt.predict(wt.load("a"))  # type: ignore[assignment]
word: str = wt.Traffic  # type: ignore[assignment]
wt.fleet.open_run(1)  # type: ignore[arg-type]
