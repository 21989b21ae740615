from .answer import Goodput as Goodput
from .answer import goodput as goodput
from .run import WholeRun as WholeRun
from .run import run_of as run_of
