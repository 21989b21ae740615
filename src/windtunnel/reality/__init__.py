"""The judge: published measurements beside predictions."""

from windtunnel.reality.report import Report
from windtunnel.reality.scores import Family, Score
from windtunnel.reality.validate import Progress, validate

__all__ = ["Family", "Progress", "Report", "Score", "validate"]
