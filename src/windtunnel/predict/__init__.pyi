from .answer.metrics import executions as executions
from .answer.money import run_price as run_price
from .answer.money import tariff_of as tariff_of
from .answer.power import cluster_watts as cluster_watts
from .prediction import KernelRow as KernelRow
from .prediction import Prediction as Prediction
from .prediction import Span as Span
from .step import predict as predict
