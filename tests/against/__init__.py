"""Old against new: the same jobs predicted by two commits. `python -m tests.against REV`, `make against REV=<commit>`."""
