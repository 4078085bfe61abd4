"""Addresses become names, files and lines: one file for each source of names. Outside of the
program, never inside.
"""

from __future__ import annotations

from layerscope.symbols.known_addresses import Named
from layerscope.symbols.python_code import LineTable, code_lines, lines_in_codes
from layerscope.symbols.short_names import short
from layerscope.symbols.symbols import Symbols

__all__ = ["LineTable", "Named", "Symbols", "code_lines", "lines_in_codes", "short"]
