"""Client for the queries of a collector, over HTTP, HTTPS or a Unix socket, for processes without access to its folder.

It uses the connections of `ship.post`, which are those of the standard library. httpx was measured instead: imports take 182 ms and
22 MiB instead of 22 ms and 8 MiB, an answer of 200 MiB 0.35 s and 434 MiB instead of 0.18 s and 233 MiB (two cores, loopback), and
`fleet run` and its monitor use this client beside the ranks.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any, Protocol

from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import Stamps
from windtunnel.fleet.query_results import Heartbeat, IdSelection, OpenSection
from windtunnel.fleet.ship.post import connection_to
from windtunnel.records.sections import COLUMNS, Sections, join_sections

TIMEOUT = 120.0
"""Timeout of one query in seconds."""
ENDLESS = 1 << 40
"""End of an open range of steps."""


class CollectedRun(Protocol):
    """Queries that `RunStore` and `CollectorClient` both answer."""

    def sections(self, steps: IdSelection = None, ranks: IdSelection = None) -> Sections: ...

    def heartbeats(self) -> list[Heartbeat]: ...

    def overview(self) -> dict[str, Any]: ...

    def exchanges(self, since: float | None = None) -> dict[str, list[Stamps]]: ...

    def close(self) -> None: ...


class CollectorClient:
    """A run at `http://host:port`, `https://host:port` (secrets: $WINDTUNNEL_FLEET_SECRETS) or `unix:PATH`.

    FileError if the collector does not answer or refuses the query.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = url
        self._connection, self._headers = connection_to(url, timeout, token)
        self._clock_offset = 0.0  # the collector's clock minus this machine's

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def now(self) -> float:
        """Unix seconds on the collector's clock, as of the last `overview`."""
        return time.time() + self._clock_offset

    def overview(self) -> dict[str, Any]:
        """As `RunStore.overview`."""
        overview: dict[str, Any] = json.loads(self._get("/v1/overview"))
        self._clock_offset = float(overview.pop("now", time.time())) - time.time()
        return overview

    def heartbeats(self) -> list[Heartbeat]:
        """As `RunStore.heartbeats`."""
        beats = json.loads(self._get("/v1/heartbeats"))
        return [Heartbeat(**{**one, "open": tuple(OpenSection(**inside) for inside in one["open"])}) for one in beats]

    def exchanges(self, since: float | None = None) -> dict[str, list[Stamps]]:
        """As `RunStore.exchanges`."""
        found = json.loads(self._get("/v1/exchanges" + ("" if since is None else f"?since={since!r}")))
        return {node: [Stamps(*one) for one in rows] for node, rows in found.items()}

    def sections(self, steps: IdSelection = None, ranks: IdSelection = None) -> Sections:
        """As `RunStore.sections`. A result that is too large for one answer is requested in halves of its steps."""
        rank_query = f"&ranks={','.join(map(str, sorted(ranks)))}" if ranks is not None else ""
        if isinstance(steps, range) and abs(steps.step) != 1 and steps:
            low, high = min(steps[0], steps[-1]), max(steps[0], steps[-1])
            found = self._span(low, high + 1, rank_query)
            return found.where((found.step - low) % abs(steps.step) == 0)
        if steps is not None and not isinstance(steps, range):
            return self._sections(",".join(map(str, sorted(steps))), rank_query)
        low, high = (steps.start, steps.stop) if steps is not None else (-1, ENDLESS)
        return self._span(low, high, rank_query)

    def _span(self, low: int, high: int, rank_query: str) -> Sections:
        try:
            return self._sections(f"{low}:{high}", rank_query)
        except _TooMuch:
            last = max((beat.step for beat in self.heartbeats()), default=low)
            high = min(high, last + 1)
            middle = (low + high) // 2
            if not low < middle < high:
                raise  # one step has more rows than an answer
            return join_sections(
                [self._span(low, middle, rank_query), self._span(middle, high if high <= last else ENDLESS, rank_query)]
            )

    def _sections(self, steps: str, rank_query: str) -> Sections:
        import pyarrow as pa

        table = pa.ipc.open_stream(self._get(f"/v1/sections?steps={steps}{rank_query}&format=arrow")).read_all()
        tables = json.loads(table.schema.metadata[b"windtunnel"])
        return Sections.of(
            **{name: table.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS},
            names=tuple(tables["names"]), groups=tuple(tuple(one) for one in tables["groups"]),
            group_names=tuple(tables["group_names"]), hosts={int(rank): host for rank, host in tables["hosts"].items()},
            zero=float(tables["zero"]),
        )  # fmt: skip

    def _get(self, path: str) -> bytes:
        try:
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise FileError(self.url, str(error) or "no answer", "a collector that runs", _TRY) from error
        if response.status == 401:
            raise FileError(self.url, "a token is needed", "the collector's token", "Set WINDTUNNEL_FLEET_TOKEN.")
        if response.status == 400 and b"rows" in raw:
            raise _TooMuch(self.url, "more rows than one answer may have", "fewer steps", "Type --last 20.")
        if response.status != 200:
            raise FileError(self.url, f"status {response.status}", "a collector of this version of windtunnel", _TRY)
        return raw


_TRY = "`windtunnel fleet collect` prints its address; name its folder if it has ended."


class _TooMuch(FileError):
    """The answer would have too many rows."""
