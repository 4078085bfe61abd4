"""Arguments of kernels and copies that the tables of GPUs show, out of their JSON."""

from __future__ import annotations


def number(key: str, type_: str = "BIGINT") -> str:
    """SQL for the argument `key` of a span in `args.json`; null where it has none."""
    pattern = f'"{key}": *"?(-?[0-9.]+)'
    return f"try_cast(nullif(regexp_extract(args.json, '{pattern}', 1), '') AS {type_})"


BYTES = number("bytes")
REGISTERS = number("registers per thread")
BLOCKS_PER_SM = number("blocks per SM", "DOUBLE")
OCCUPANCY_PERCENT = number("est. achieved occupancy %", "DOUBLE")


def text(key: str, table: str = "args") -> str:
    """SQL for the argument `key` as a text, lists as they are written; null where it has none."""
    value = '("([^"]*)"|(\\[[^\\]]*\\])|(-?[0-9.]+))'
    found = [f"regexp_extract({table}.json, '\"{key}\": *{value}', {n})" for n in (2, 3, 4)]
    return f"nullif({' || '.join(found)}, '')"
