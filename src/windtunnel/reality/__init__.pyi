from .rows.conventions import model_flops_per_token as model_flops_per_token
from .score.report import Report as Report
from .score.scores import FamilySummary as FamilySummary
from .score.scores import Score as Score
from .validate import Progress as Progress
from .validate import validate as validate
