"""PyYAML's SafeLoader with two corrections: `3e11` is a number (YAML 1.2), and a key written twice is an error."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

_FLOAT = re.compile(r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+$")


def yaml_package() -> Any:
    """The module `yaml`, imported only when a YAML file is read; ImportError where PyYAML is missing."""
    return importlib.import_module("yaml")


@functools.cache
def loader() -> Any:
    """The loader class."""
    yaml = yaml_package()

    def mapping(self: Any, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1 and name != "<<"), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice!r} is written twice", node.start_mark)
        return yaml.SafeLoader.construct_mapping(self, node, deep)

    restricted: Any = type("Loader", (yaml.SafeLoader,), {"construct_mapping": mapping})
    restricted.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    return restricted
