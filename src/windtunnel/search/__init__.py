"""From one job to better ones: a first plan for a model, priced advice, changes that make a job fit."""

from windtunnel.search.change import Change
from windtunnel.search.levers.advice import Advice, advise
from windtunnel.search.levers.fixes import Fix, fixes
from windtunnel.search.start import Start, start

__all__ = ["Advice", "Change", "Fix", "Start", "advise", "fixes", "start"]
