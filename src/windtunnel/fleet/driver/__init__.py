"""Driver of a job: holds its lease, receives reports of the agents, detects faults by explicit rules and restarts the job by a
policy.
"""
