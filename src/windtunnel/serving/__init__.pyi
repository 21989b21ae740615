from .answer import LatencySpread as LatencySpread
from .answer import Served as Served
from .load import ServeLoad as ServeLoad
from .predict import serve as serve
from .server import ServePlan as ServePlan
from .server import Server as Server
from .server import server_of as server_of
from .traces import read_trace as read_trace
