"""Starts an unchanged training script under the monitor: `launch.command` for the command, `hook/` for what its processes load."""
