"""Inside the program, run by path when it imports hypercorn: records the requests that it serves.
Standard library only.
"""

import sys

WRAPPERS = "hypercorn.app_wrappers"
STREAMS = "hypercorn.protocol.http_stream"
LATER = {WRAPPERS: "look_again", STREAMS: "look_again"}


def look(requests):
    """The modules may have been imported in which an application is called, and answers."""
    wrapper = getattr(sys.modules.get(WRAPPERS), "ASGIWrapper", None)
    stream = getattr(sys.modules.get(STREAMS), "HTTPStream", None)
    requests["watch"](wrapper, "__call__", requests["WRAPS"], requests["wrapping"])
    requests["watch"](stream, "app_send", requests["SENDS"], requests["sending"])


with open(folder + "/../../../inside/server.py") as source:  # noqa: F821 - the door puts it here
    exec(compile(source.read(), source.name, "exec"))
