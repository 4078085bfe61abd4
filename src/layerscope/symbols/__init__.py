"""Addresses become names, files and lines: one file for each source of names. Outside of the
program, never inside.
"""

from __future__ import annotations

from layerscope.symbols.python_code import code_lines
from layerscope.symbols.short_names import short
from layerscope.symbols.symbols import Named, Symbols

__all__ = ["Named", "Symbols", "code_lines", "short"]
