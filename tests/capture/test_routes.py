"""How requests are called: by method and route, as far as the framework of the program says it."""

from __future__ import annotations

import runpy
from typing import Any

import pytest

from tests.recorded import ROOT

FILE = ROOT / "src/layerscope/capture/inside/routes.py"


class OfFramework:
    """What a framework leaves in a scope."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


ROUTE = OfFramework(path="/items/{n:int}", endpoint=print)
MOUNT = OfFramework(path="/static", app=print)
INCLUDED = OfFramework(path="/items/{n}", endpoint=print)
CHOSEN = {"effective_route_context": OfFramework(original_route=INCLUDED, path="/v1/items/{n}")}


@pytest.mark.parametrize(
    ("scope", "status", "name"),
    [
        ({"path": "/plain"}, 200, "GET /plain"),
        ({"path": "/items/3", "route": ROUTE}, 200, "GET /items/{n:int}"),
        ({"path": "/items/3", "route": ROUTE}, 404, "GET /items/{n:int}"),
        ({"path": "/api/items/3", "route": ROUTE, "root_path": "/api"}, 200, "GET /api/items/{n:int}"),
        ({"path": "/static/a", "route": MOUNT, "root_path": "/static"}, 200, "GET /static/{path}"),
        ({"path": "/raw/a", "root_path": "/raw"}, 404, "GET /raw/{path}"),
        ({"path": "/v1/items/3", "route": INCLUDED, "fastapi": CHOSEN}, 200, "GET /v1/items/{n}"),
        ({"path": "/items/3", "route": ROUTE, "fastapi": CHOSEN}, 200, "GET /items/{n:int}"),
        ({"path": "/u/3", "path_params": {"user": 3}}, 200, "GET /u/{user}"),
        ({"path": "/wp-admin.php"}, 404, "GET (404)"),
        ({"path": "/items/3/"}, 307, "GET (307)"),
        ({"path": "/fails"}, 500, "GET /fails"),
        ({"path": "/x", "method": "BREW"}, 200, "(other method) /x"),
        ({}, 0, "GET "),
        ({"path": 1, "route": 2, "root_path": 3, "path_params": 4, "fastapi": 5}, 200, "GET "),
    ],
)  # fmt: skip
def test_a_request_is_called_by_its_route(scope: dict[str, Any], status: int, name: str) -> None:
    assert runpy.run_path(str(FILE))["name_of"]({"method": "GET", **scope}, "", status) == name


def test_values_in_the_begin_of_a_mounted_application_are_called_by_their_names() -> None:
    name_of = runpy.run_path(str(FILE))["name_of"]
    scope = {"method": "GET", "path": "/of/acme/items/3", "route": ROUTE, "root_path": "/of/acme"}
    assert (
        name_of({**scope, "path_params": {"tenant": "acme", "n": 3}})
        == "GET /of/{tenant}/items/{n:int}"
    )
    # What a part of the route holds may look like the begin.
    assert name_of({**scope, "path_params": {"n": "of"}}) == "GET /of/acme/items/{n:int}"


def test_what_a_server_puts_before_all_paths_is_in_no_name() -> None:
    name_of = runpy.run_path(str(FILE))["name_of"]
    scope = {"method": "GET", "path": "/proxy/items/3", "route": ROUTE, "root_path": "/proxy"}
    assert name_of(scope, "/proxy", 200) == "GET /items/{n:int}"
    assert name_of({**scope, "route": None}, "/proxy", 200) == "GET /items/3"


def test_there_are_so_many_names_and_no_more() -> None:
    routes = runpy.run_path(str(FILE))
    names = {routes["name_of"]({"method": "GET", "path": f"/{n}"}) for n in range(1_000)}
    assert len(names) == routes["MOST_NAMES"] + 1
    assert "GET (other paths)" in names
