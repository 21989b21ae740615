"""The rules by which engines choose what the next forward pass computes, one file for each."""
