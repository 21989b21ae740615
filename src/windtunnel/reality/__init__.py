"""The judge: published measurements beside predictions."""

from windtunnel.reality.report import Family, Report, Score
from windtunnel.reality.validate import Progress, validate

__all__ = ["Family", "Progress", "Report", "Score", "validate"]
