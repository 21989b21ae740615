from .answer import RLStep as RLStep
from .job import RLJob as RLJob
from .job import load_rl_job as load_rl_job
from .predict import predict_rl as predict_rl
from .predict import try_splits as try_splits
from .spec import PostTraining as PostTraining
from .spec import RolloutSpec as RolloutSpec
