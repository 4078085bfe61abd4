"""Inside the program, run by path by the hook of a server: requests that an ASGI application
answers. Standard library only.

A request ends where the application sends the last part of its answer, or where its task ends
without that. What hears of the calls of the server is in C, so an application has what the server
gives it, and no frame of ours is in its tracebacks. No code of the application is called: what it
raises would be taken for a fault of ours.
"""

import sys

SENDS, RUNS, ANSWERS, WRAPS = range(4)  # who hears of a call, as the agent numbers them
FAULTS, is_of_handler = faults  # noqa: F821 - the hook puts it here
state = {"agent": None, "enter": None, "wanted": True, "stand_in": None}
classes = {}  # by class and name of a method the function that was there
under_way = {}  # by id of the object whose method sends the answer


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
    python = ctypes.PyDLL(settings["library"])
    python.ls_request_enter.restype = None
    python.ls_request_enter.argtypes = [ctypes.c_uint64]
    python.ls_watched_call.restype = ctypes.py_object  # NULL raises ValueError
    python.ls_watched_call.argtypes = [ctypes.c_int, ctypes.py_object, ctypes.py_object]
    state.update(agent=agent, enter=python.ls_request_enter, stand_in=python.ls_watched_call)
    return True


class Arrived:
    """A request that has arrived; its answer goes by a method of the object with the id `key`."""

    __slots__ = ("handle", "key", "root", "scope", "status", "task")

    def __init__(self, scope, handle, key):
        self.scope, self.handle, self.key = scope, handle, key
        self.root = root_of(scope)
        self.status = 0
        self.task = None

    def enter(self):
        """This task answers it."""
        import weakref

        state["enter"](self.handle[1])
        asyncio = sys.modules.get("asyncio")
        task = asyncio.current_task() if asyncio else None
        if task is not None:  # a callback of the task would be shown where the task is
            self.task = weakref.ref(task, self.end)

    def name(self):
        """How it is called, now that it is answered."""
        return name_of(self.scope, self.root, self.status)

    def end(self, reference=None):
        """It is answered."""
        try:
            if under_way.get(self.key) is self:
                del under_way[self.key]
                self.task = None
                state["agent"].ls_request_end(self.handle, self.name())
        except FAULTS as error:
            if is_of_handler(error):
                raise


def arrive(scope, sender):
    """A request may have arrived; its answer goes by a method of `sender`. Whether it is one."""
    import ctypes

    earlier = under_way.get(id(sender))
    if earlier is not None:  # of an object that is gone
        earlier.end()
    handle = (ctypes.c_uint64 * 2)()
    if not state["wanted"] or not is_request(scope) or not state["agent"].ls_request_begin(handle):
        return False
    under_way[id(sender)] = Arrived(scope, handle, id(sender))
    return True


def running(sender, app=None, *more):
    """The method of a server is called that runs an application: what the server calls then."""
    try:
        if arrive(getattr(sender, "scope", None), sender):
            return state["stand_in"](ANSWERS, app, answering)
    except FAULTS as error:
        if is_of_handler(error):
            raise
    return None


def answering(scope=None, receive=None, send=None, *more):
    """The application is called, in the task of a request."""
    try:
        one = under_way.get(id(send.__self__))
        if one is not None:
            one.enter()
    except FAULTS as error:
        if is_of_handler(error):
            raise


def wrapping(wrapper, scope=None, receive=None, send=None, *more):
    """The method is called that calls an application, in the task of a request."""
    try:
        if arrive(scope, send.__self__):
            under_way[id(send.__self__)].enter()
    except FAULTS as error:
        if is_of_handler(error):
            raise


def sending(sender, message=None, *more):
    """The application sends a part of an answer."""
    try:
        one = under_way.get(id(sender))
        if one is not None:
            one.status = status_of(message) or one.status
            if is_last(message):
                one.end()
    except FAULTS as error:
        if is_of_handler(error):
            raise


def is_last(message):
    """Whether it ends an answer. None: the server tells itself that the application is over."""
    if not isinstance(message, dict):
        return message is None
    kind = dict.get(message, "type")
    is_body = isinstance(kind, str) and str.__eq__(kind, "http.response.body")
    return is_body and not dict.get(message, "more_body", False)


def status_of(message):
    """By what a message answers a request; 0: it does not say that."""
    status = dict.get(message, "status") if isinstance(message, dict) else None
    return int.__int__(status) if isinstance(status, int) else 0


def root_of(scope):
    """The begin of the path that is not the application's, as the server has it."""
    root = dict.get(scope, "root_path")
    return str.__str__(root) if isinstance(root, str) else ""


def name_of(scope, root, status):
    """How a request is called, with its domain, as the agent takes it."""
    name = routes["name_of"](scope, root, status)  # noqa: F821 - the hook puts `routes` here
    return (name.replace("\n", " ") + "\nrequest").encode("utf-8", "backslashreplace")


def is_request(scope):
    """Not a connection that stays, and not the begin or the end of the server."""
    return isinstance(scope, dict) and scope.get("type") == "http"


def watch(owner, name, which, hear):
    """Have a function of ours hear of the calls of a method of a class."""
    original = getattr(owner, "__dict__", {}).get(name)
    if original is None or (owner, name) in classes:
        return
    try:
        ours = state["stand_in"](which, original, hear)
    except ValueError:  # this Python is not understood
        return
    classes[owner, name] = original
    setattr(owner, name, ours)
