"""The adapters of frameworks: one folder each, found by its name (`capture.adapter`)."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from layerscope.capture.adapter import Adapter


def adapters() -> tuple[Adapter, ...]:
    """All of them, in the order of the names of the frameworks."""
    return tuple(named_adapters().values())


@functools.cache
def named_adapters() -> Mapping[str, Adapter]:
    """All of them, by name of the framework."""
    found = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        found[name] = module.ADAPTER
    return found
