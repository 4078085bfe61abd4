"""Inside the program, run by path beside hook.py once it has torch._dynamo: has the agent record
each compilation of torch.compile as a task, with what is compiled and why.

It stands in front of the two functions by which torch tells callbacks that a compilation begins and
ends: a callback of our own would be gone after `torch._dynamo.reset`. Standard library only, and of
that only what is written in C: while torch.compile is at work, it would compile what is called.
"""

import sys
from _json import encode_basestring_ascii

TASK = 6  # native/layout.h
DOMAIN = "torch.compile"
BEGINS, ENDS = "run_start_callbacks", "run_end_callbacks"
# A text of the agent has 1 KiB; more than a line of a reason tells how torch came to it.
MOST_NAME, MOST_LINE, MOST_REASON = 300, 200, 300


def compiling():
    """The frame of the function of torch that compiles, further out on this thread; None where the
    compilation was put off until its result was needed, as that of a backward pass.
    """
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_compile" and code.co_filename.endswith("_dynamo/convert_frame.py"):
            return frame
        frame = frame.f_back
    return None


def text_of(value, most):
    """The first line of a text, without what torch has put behind it as a comment."""
    lines = str(value).split("\n", 1)
    line = lines[0].split("  # ", 1)[0]
    return " ".join(line.split())[:most]


def name_of(frame, current):
    """What is compiled."""
    code = None if frame is None else frame.f_locals.get("code")
    if code is None:
        return "backward pass of " + str(current())
    return getattr(code, "co_qualname", code.co_name)


def line_of(frame, code, own_folder):
    """The first line of what is compiled; where it is torch's own, the line that calls it."""
    if not code.co_filename.startswith(own_folder):
        return f"{code.co_filename[-MOST_LINE:]}:{code.co_firstlineno}"
    while frame is not None and frame.f_code.co_filename.startswith(own_folder):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename[-MOST_LINE:]}:{frame.f_lineno}"


def arguments_of(frame, current, own_folder):
    """JSON: which compilation it is by torch's own number, its line, and why it is not the first
    one of its function, as far as this version of torch knows that.
    """
    known = {} if frame is None else frame.f_locals
    number = encode_basestring_ascii(str(current()))
    parts = [f'"domain": "{DOMAIN}"', f'"number": {number}']
    code = known.get("code")
    if code is not None:
        line = encode_basestring_ascii(line_of(frame, code, own_folder))
        parts.append(f'"line": {line}')
    # Since 2.6 it is one text, before it was a list.
    reason = known.get("recompile_reason") or known.get("recompile_reasons")
    if isinstance(reason, list):
        reason = reason[0] if reason else ""
    if reason:
        coded = encode_basestring_ascii(text_of(reason, MOST_REASON))
        parts.append(f'"reason": {coded}')
    return "{" + ", ".join(parts) + "}"


def watch(library, torch):
    """Begin; what `stop` takes. None: this torch does not tell of its compilations."""
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    context = getattr(getattr(torch, "_guards", None), "CompileContext", None)
    current = getattr(context, "current_compile_id", None)
    if current is None or not (hasattr(handler, BEGINS) and hasattr(handler, ENDS)):
        return None
    import ctypes

    agent = ctypes.CDLL(library)
    _, is_of_handler = faults  # noqa: F821 - the hook puts it here
    own_folder = torch.__file__.rpartition("/")[0] + "/"
    opened = []
    handle_of_range = ctypes.c_uint64 * 2
    begin, end = getattr(handler, BEGINS), getattr(handler, ENDS)

    def compilation_begins(*arguments):
        try:
            handle = handle_of_range()
            text = text_of(name_of(compiling(), current), MOST_NAME) + "\n" + DOMAIN
            if agent.ls_range_begin(text.encode("utf-8", "backslashreplace"), TASK, handle) == 0:
                opened.append(handle)
        except Exception as error:  # it is the program's compilation that would fail
            if is_of_handler(error):
                raise
        return begin(*arguments)

    def compilation_ends(*arguments):
        try:
            if opened:
                handle = opened.pop()
                json = arguments_of(compiling(), current, own_folder)
                agent.ls_range_describe(handle, json.encode())
                agent.ls_range_end(handle)
        except Exception as error:
            if is_of_handler(error):
                raise
        return end(*arguments)

    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    ours = (compilation_begins, compilation_ends)
    for function in (*ours, compiling, text_of, name_of, line_of, arguments_of):
        if skip is not None:
            skip(function.__code__)
    setattr(handler, BEGINS, compilation_begins)
    setattr(handler, ENDS, compilation_ends)
    return agent, handler, opened, ours


def stop(agent, handler, opened, ours):
    """Undo it; nobody else ends what is open."""
    for name, function in zip((BEGINS, ENDS), ours):  # noqa: B905 - Python 3.8 has no strict
        if vars(handler).get(name) is function:
            delattr(handler, name)
    while opened:
        agent.ls_range_end(opened.pop())
