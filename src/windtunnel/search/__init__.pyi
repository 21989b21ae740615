from .change import Change as Change
from .levers.advice import Advice as Advice
from .levers.advice import advise as advise
from .levers.fixes import Fix as Fix
from .levers.fixes import fixes as fixes
from .start import Start as Start
from .start import start as start
