"""A row of a published table as a Job: its network, machine and software, with every assumption."""
