"""The page of the service: NiceGUI on the same application as the API. `sections/` holds what one sees; all answers come through
the door."""

from importlib.util import find_spec

GET_PAGE = "the page needs further packages. Type: pip install 'windtunnel[service,page]'"
"""What `windtunnel serve` says where the page cannot be had."""


def has_page() -> bool:
    """Whether what the page needs is installed."""
    return find_spec("nicegui") is not None
