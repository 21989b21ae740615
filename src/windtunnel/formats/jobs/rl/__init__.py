"""What trainers of reinforcement learning state of a step beside its update: the table `rl` of a job."""
