"""`windtunnel import`: what other tools wrote."""
