"""The checkpointer in loops that are not the user's own: callbacks of frameworks, imported only where they are asked for."""
