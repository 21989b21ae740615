"""Runs a self-test of `fleet.diagnose` as a subprocess with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

from windtunnel.fleet.wire.messages import OrderAnswer, RunTest


async def run_diagnosis(command: RunTest) -> OrderAnswer:
    """Runs the test and returns the answer to `command`. A test that exceeds its limit or prints no result counts as failed."""
    began = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windtunnel.fleet.diagnose", command.name, "--json", *command.options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        said, complained = await asyncio.wait_for(child.communicate(), command.limit)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        return OrderAnswer(command.order, passed=False, seconds=time.monotonic() - began, why=f"no end within {command.limit:g} s")
    seconds = time.monotonic() - began
    try:
        line = json.loads(said.decode().strip().splitlines()[-1])
        return OrderAnswer(
            command.order, passed=line["passed"], seconds=seconds, why=f"{command.name}: {line.get('why') or ''}".strip()
        )
    except (ValueError, IndexError, KeyError):
        last = (complained.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
        return OrderAnswer(command.order, passed=False, seconds=seconds, why=f"{command.name} says {last[:200]}")
