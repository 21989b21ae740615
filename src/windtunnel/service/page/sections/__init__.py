"""The sections of the page, one file each with `build(context)`; `page/app.py` lists them in their order."""
