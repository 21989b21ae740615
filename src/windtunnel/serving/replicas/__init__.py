"""Many replicas of a server behind a router: requests over hours, failures, an autoscaler."""
