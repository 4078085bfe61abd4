"""The checks, found by their files. Each is a module with ORDER (smaller comes first), a docstring
whose first line says what it looks at, and `check(seen) -> Iterator[Check]`.
"""
