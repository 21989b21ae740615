"""Validation: published measurements compared with predictions."""

from windtunnel.reality.rows.conventions import model_flops_per_token
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score
from windtunnel.reality.validate import Progress, validate

__all__ = ["FamilySummary", "Progress", "Report", "Score", "model_flops_per_token", "validate"]
