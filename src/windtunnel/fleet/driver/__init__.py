"""The driver of a job: one owner by lease, who hears the agents, sees faults by explicit rules and
starts again by a policy."""
