"""The page of a collector: what the run is and what stands out, without scripts. `fleet show URL --html` draws more."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

HEADERS = {
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}  # fmt: skip
"""The address has the token, so it goes nowhere: no referrer, no copy on disk."""
_RELOAD = 10


def collector_page(overview: Mapping[str, Any], beats: list[dict[str, Any]], findings: Mapping[str, Any], token: str) -> str:
    """The page. `token`: for its links, which ask for the same token."""
    steps = [int(beat["step"]) for beat in beats]
    living = sum(beat["ended"] is None and beat["process"] != "gone" for beat in beats)
    found = "".join(f"<li><b>{escape(str(one['verdict']))}</b>: {escape(str(one['text']))}</li>" for one in findings["findings"])
    asked = f"?token={quote(token)}" if token else ""
    links = " · ".join(
        f'<a href="{path}{asked}">{path}</a>' for path in ("/v1/overview", "/v1/heartbeats", "/v1/findings", "/metrics")
    )
    rows = "".join(
        f"<tr><td>{int(beat['rank'])}<td>{escape(str(beat['host']))}<td>{int(beat['step'])}<td>{escape(str(beat['process']))}</tr>"
        for beat in beats[:1000]
    )
    span = f"step {min(steps)}" + (f" to {max(steps)}" if max(steps) > min(steps) else "") if steps else "no rank has sent anything"
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{_RELOAD}">
<title>{escape(str(overview["run"]) or "windtunnel")}</title>
<style>body{{font:15px system-ui,sans-serif;margin:2em;max-width:60em}}td,th{{padding:0 1em 0 0;text-align:left}}</style>
<h1>{escape(str(overview["run"]) or "A run that has not begun")}</h1>
<p>{int(overview["world"])} ranks, {living} of them alive; {span}.</p>
<ul>{found or "<li>Nothing stands out.</li>"}</ul>
<table><tr><th>rank<th>machine<th>step<th>process</tr>{rows}</table>
<p>{links}</p></html>"""
