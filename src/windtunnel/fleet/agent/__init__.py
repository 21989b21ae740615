"""Agent: one process per node that starts, watches and ends one process per GPU, and reports to the driver. The ranks are children
of a separate keeper process, so that they survive the agent.
"""
