from .options import ReplayOptions as ReplayOptions
from .result import ReplayResult as ReplayResult
from .run import replay as replay
