"""Launch scripts and command lines as the words of the command that they start. Nothing is executed."""
