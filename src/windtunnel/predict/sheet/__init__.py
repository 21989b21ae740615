"""What a prediction shows, and what answers about predictions have in common."""
