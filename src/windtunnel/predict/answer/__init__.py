"""What is read off the run of a step."""
