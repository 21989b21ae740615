"""English names of the parts of a step and of memory: those that the answers have."""

from windtunnel.predict.category import STEP_PARTS
from windtunnel.report.words.parts import MEMORY_PARTS

WORDS = {f"parts.{label}": label for label in (*MEMORY_PARTS, *(part.label for part in STEP_PARTS.values()))}
