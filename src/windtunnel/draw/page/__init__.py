"""Pages: jinja2 templates, drawings as SVG, and the scripts beside them."""
