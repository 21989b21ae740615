"""A collective for a network engine: lanes, which are streams of slices from one rank to another that wait for other lanes.

Slice j of a lane may start once every lane that it depends on has delivered enough,
`delivered(d) >= min(slices(d), j + 1 - lead)`; `lead` is `ALL` if it waits for all of them. At most `window` slices are in
flight at once (credits; 0: any number). Then it waits `delay` seconds and is sent at no more than `rate`. It is delivered no sooner
than `hold` seconds after the end of sending at that rate (empty: when its last packet arrives). A ring is n lanes per channel,
each depending on the one before it; a send is a lane without dependencies. See cpp/net/lanes.h.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field

ALL = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Lanes:
    """K lanes in columns; D dependencies. Endpoints are the graph's; bytes are those on the wire; seconds, B/s.

    `group` [K]: lanes of one group advance together (pipelined); the flow engine makes one variable of each.
    """

    src: Int32s
    dst: Int32s
    bytes: Int64s
    slice: Int64s
    window: Int32s
    delay: Floats
    rate: Floats  # inf: as fast as the links
    begin: Floats
    group: Int32s
    dep_start: Int64s  # [K+1]
    dep_lane: Int32s
    dep_lead: Int64s
    hold: Floats = field(default_factory=lambda: np.empty(0))  # packets only

    def __len__(self) -> int:
        return len(self.src)
