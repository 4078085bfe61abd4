"""Inside the program, run by path by the hook of a server: requests that an ASGI application
answers. Standard library only.

A request ends where the application sends the last part of its answer, or where its task ends
without that. No frame of ours is in a traceback of the application: what stands around it returns
its coroutine, and does not wait for it.
"""

import functools
import sys

MOST_NAMES = 500  # of requests; a path may hold the number of a customer
FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
state = {"agent": None, "enter": None, "wanted": True, "hidden": None}
names = set()
classes = {}  # by class and name of a method the function that was there


def begin_recording(settings, beginning):
    """Load the agent. False: nobody listens."""
    import ctypes

    agent = beginning["prepared"](settings)
    if agent is None:
        return False
    agent.ls_request_begin.restype = ctypes.c_uint64
    agent.ls_request_begin.argtypes = [ctypes.c_void_p]
    agent.ls_request_end.restype = None
    agent.ls_request_end.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    enter = ctypes.PyDLL(settings["library"]).ls_request_enter
    enter.restype = None
    enter.argtypes = [ctypes.c_uint64]
    state.update(agent=agent, enter=enter, hidden=beginning["hidden_by"](settings))
    return True


class Arrived:
    """A request that has arrived. What is asked of it raises nothing."""

    __slots__ = ("handle", "scope")

    def __init__(self, scope):
        import ctypes

        self.scope = scope
        self.handle = None
        try:
            handle = (ctypes.c_uint64 * 2)()
            if state["wanted"] and state["agent"].ls_request_begin(handle):
                self.handle = handle
        except FAULTS:
            pass

    def enter(self):
        """This task answers it."""
        try:
            state["enter"](self.handle[1])
            asyncio = sys.modules.get("asyncio")
            task = asyncio.current_task() if asyncio else None
            if task is not None:
                task.add_done_callback(self.end)
        except FAULTS:
            pass

    def end(self, task=None):
        """It is answered."""
        try:
            handle, self.handle = self.handle, None
            if handle is not None:
                state["agent"].ls_request_end(handle, name_of(self.scope))
        except FAULTS:
            pass

    def watching(self, send):
        """What the application sends by, seen by us."""

        def sent(message):
            self.look(message)
            return send(message)

        return state["hidden"](sent)

    def look(self, message):
        """Whether this is the last part of the answer."""
        try:
            is_body = message["type"] == "http.response.body"
            if is_body and not message.get("more_body", False):
                self.end()
        except FAULTS:
            pass


def name_of(scope):
    """How a request is called: by its route, where the framework of the program says that."""
    path = getattr(scope.get("route"), "path", None)
    if not isinstance(path, str):
        path = str(scope.get("path", ""))
    name = f"{scope.get('method', '')} {path}"[:200]
    if name not in names and len(names) >= MOST_NAMES:
        name = f"{scope.get('method', '')} (other paths)"
    names.add(name)
    return (name.replace("\n", " ") + "\nrequest").encode("utf-8", "backslashreplace")


def is_request(scope):
    """Not a connection that stays, and not the begin or the end of the server."""
    return isinstance(scope, dict) and scope.get("type") == "http"


def answering(app, arrived):
    """The application that answers one request."""

    def answer(scope, receive, send):
        arrived.enter()
        return app(scope, receive, arrived.watching(send))

    return answer


def put_in_place(owner, name, make):
    """Have `make(original)` stand in the place of a method of a class, once."""
    original = owner.__dict__.get(name)
    if original is None or (owner, name) in classes:
        return
    classes[owner, name] = original
    ours = functools.wraps(original)(make(original))
    setattr(owner, name, state["hidden"](ours))
