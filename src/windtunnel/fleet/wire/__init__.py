"""Communication between driver and agents: typed messages in frames of limited size, over TLS with a pinned certificate or a
private Unix socket.
"""
