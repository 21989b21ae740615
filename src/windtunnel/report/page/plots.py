"""Pictures of answers whose pages are no sheets yet; they are drawn in `draw.page.plots`."""

from windtunnel.draw.page.plots import *  # noqa: F403
