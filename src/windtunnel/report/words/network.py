"""What an engine did to the network over a step, for reports that are no sheets yet."""

from windtunnel.network.traffic_sheet import filled_by as filled_by
from windtunnel.network.traffic_sheet import network_sentence as network_sentence
from windtunnel.network.traffic_sheet import shown_hot as shown_hot
