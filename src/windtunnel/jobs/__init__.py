"""A checked job from whatever describes it: a name, a file of ours or of another tool, and a machine."""
