from .prediction import KernelRow as KernelRow
from .prediction import Prediction as Prediction
from .prediction import Span as Span
from .step import predict as predict
