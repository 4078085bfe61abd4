"""Inside the program, run by path beside hook.py: what a function is compiled for. JAX tells its
monitors the name of a function alone; what it was called with is a variable of the function of JAX
that tells them. Standard library only.
"""

import sys

MOST_FRAMES = 8
MOST_ARGUMENTS = 64
MOST_LETTERS = 80
# Of jax._src.interpreters.pxla, by the variables that it must have.
LOWERS, PROGRAM, TYPES = "_cached_lowering_to_hlo", "closed_jaxpr", "in_avals"


def of_lowering():
    """(name, type) of the arguments of what is lowered, further out on this thread; (): not known.
    To be called where JAX tells of it.
    """
    frame = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return []
        if frame.f_code.co_name == LOWERS:
            known = frame.f_locals
            return named(known[PROGRAM], known[TYPES])
        frame = frame.f_back
    return []


def named(program, types):
    """The arguments with their names, as far as there are any."""
    types = list(types)[:MOST_ARGUMENTS]
    names = getattr(program.jaxpr.debug_info, "arg_names", None) or ()
    names = list(names)[:MOST_ARGUMENTS]
    if len(names) < len(types):
        names = [None] * len(types)
    return [
        [str(name or "")[:MOST_LETTERS], str(one)[:MOST_LETTERS]]
        for name, one in zip(names, types)  # noqa: B905 - Python 3.9 has no strict
    ]
