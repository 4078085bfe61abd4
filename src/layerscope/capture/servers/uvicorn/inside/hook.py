"""Inside the program, run by path when it imports uvicorn: records the requests that it serves.
Standard library only.
"""

import sys

PROTOCOLS = "uvicorn.protocols.http."
CYCLE = "RequestResponseCycle"
LATER = {
    PROTOCOLS + name: "look_again"
    for name in ("h11_impl", "httptools_impl", "zttp_impl", "zttp_h2_impl")
}


def look(requests):
    """A module that reads requests may have been imported."""
    for name in LATER:
        cycle = getattr(sys.modules.get(name), CYCLE, None)
        requests["watch"](cycle, "run_asgi", requests["RUNS"], requests["running"])
        requests["watch"](cycle, "send", requests["SENDS"], requests["sending"])


with open(folder + "/../../../inside/server.py") as source:  # noqa: F821 - the door puts it here
    exec(compile(source.read(), source.name, "exec"))
