"""What a collective is to a network engine: lanes, streams of slices from one rank to another that wait for other lanes.

Slice j of a lane may start once every lane that it depends on has delivered enough,
`delivered(d) >= min(slices(d), j + 1 - lead)`; `lead` is `ALL` where it waits for all of them. At most `window` slices are on their
way at once (credits; 0: any number). Then it waits `delay` seconds and leaves at no more than `rate`, and is delivered no sooner
than `hold` seconds after that rate has sent it (empty: whenever its last packet arrives). A ring is n lanes a channel,
each depending on the one before it; a send is a lane that depends on nothing. See cpp/net/lanes.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Floats, Int32s, Int64s

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
