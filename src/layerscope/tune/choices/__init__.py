"""What can be set, found by its files: each a module whose docstring's first line says what it
sets.

    ORDER    smaller comes first, and is the last to be left out when the budget is short
    STAGE    1: crossed with all others of stage 1; 2, 3: each by itself on top of what won before
    choices  (place) -> Iterator[Setting]: those worth trying here, without the default
    notes    (place) -> Iterator[str]: what could not be tried, why, and the remedy; may be missing

A variable that the user has set is part of the default; another value of it is tried like any other
setting.
"""
