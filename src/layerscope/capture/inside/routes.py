"""Inside the program, run by path by the hook of a server: how a request is called that an ASGI
application has answered. Standard library only.

By its method and its route, where the framework of the program says that: Starlette and FastAPI
leave it in the scope. Where an application is mounted in another one, the scope has the begin of
the path that leads there. No code of the program is called.
"""

MOST_NAMES = 500  # of requests; a path may hold the number of a customer
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
SOME_PATH = "/{path}"  # as Starlette calls what is below a mounted application
names = set()


def text_of(value):
    """A text, without what a class of the program may make of it; empty: it is none."""
    return str.__str__(value) if isinstance(value, str) else ""


def fields_of(value):
    """What an object of Python code has, by name."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def of_scope(scope, name):
    """One of the dictionaries in a scope."""
    found = dict.get(scope, name)
    return found if isinstance(found, dict) else {}


def route_of(scope):
    """The route that was found, as the framework has it, and whether it leads to one; empty: it
    does not say that.
    """
    route = dict.get(scope, "route")
    fields = fields_of(route)
    chosen = fields_of(dict.get(of_scope(scope, "fastapi"), "effective_route_context"))
    if route is not None and chosen.get("original_route") is route:  # of a router with a prefix
        whole = fields_of(chosen.get("starlette_route"))
        path = text_of(chosen.get("path")) or text_of(whole.get("path"))
        return path or text_of(fields.get("path")), True
    return text_of(fields.get("path")), "endpoint" in fields


def mounted_at(scope, root, route):
    """Where the application is mounted that has the route; `root`: as the server has it."""
    at = behind(root, text_of(dict.get(scope, "root_path"))).rstrip("/")
    return with_names(at, scope, route) if at else ""


def behind(root, path):
    """A path without what the server puts before all of them."""
    return path[len(root) :] if path.startswith(root) else path


def with_names(path, scope, route=""):
    """A path with the names of what it was found to hold, but for those of a route behind it."""
    known = {}
    for name, value in of_scope(scope, "path_params").items():
        is_of_route = "{" + name in route if isinstance(name, str) else True
        if not is_of_route and type(value).__module__ in ("builtins", "uuid"):
            known[str(value)] = "{" + name + "}"
    known.pop("", None)
    return "/".join([known.get(part, part) for part in path.split("/")])


def place_of(scope, root, status):
    """What was asked for, behind the method."""
    route, is_last = route_of(scope)
    mounted = mounted_at(scope, root, route if is_last else "")
    if mounted:
        return mounted + (route if is_last else SOME_PATH)
    if route:
        return route if is_last else route.rstrip("/") + SOME_PATH
    if 300 <= status < 500:  # it was found nowhere: anybody asks for anything
        return f"({status})"
    return with_names(behind(root, text_of(dict.get(scope, "path"))), scope)


def name_of(scope, root="", status=0):
    """How a request is called. `root`: the begin of paths that the server knows; `status`: what it
    was answered by.
    """
    method = text_of(dict.get(scope, "method"))
    if method not in METHODS:
        method = "(other method)"
    name = f"{method} {place_of(scope, root, status)}"[:200]
    if name not in names and len(names) >= MOST_NAMES:
        return f"{method} (other paths)"
    names.add(name)
    return name
