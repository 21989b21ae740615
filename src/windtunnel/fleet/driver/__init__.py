"""The driver of a job: one owner by lease, who hears the agents, sees faults by explicit rules, decides by a policy and starts again."""
