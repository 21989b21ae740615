"""Validation: published measurements compared with predictions."""

from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score
from windtunnel.reality.validate import Progress, validate

__all__ = ["FamilySummary", "Progress", "Report", "Score", "validate"]
