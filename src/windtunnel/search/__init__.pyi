from .change import Change as Change
from .levers.fixes import Fix as Fix
from .levers.fixes import fixes as fixes
from .levers.reasons import Advice as Advice
from .levers.reasons import advise as advise
from .start import Start as Start
from .start import start as start
