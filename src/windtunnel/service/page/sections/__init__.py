"""The sections of the page, one file each with `build(context)`; `listed.py` has them in their order."""
