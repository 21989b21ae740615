"""Other simulators, followed to their last digit: SimAI's analytical mode, ASTRA-sim and LogGOPSim. windtunnel is scored against
them, and none of its predictions needs them. They read their files with windtunnel's readers.
"""
