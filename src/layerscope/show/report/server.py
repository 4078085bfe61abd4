"""The report from a server of this machine: what `layerscope view` opens.

It answers the browser of the user who started it, and nobody else: it listens on 127.0.0.1 alone,
asks for a token that only the printed address has (then for a cookie that the browser got for it),
and compares the names under which it was asked. It can be read from a fixed list of places, and
changes nothing.
"""

from __future__ import annotations

import contextlib
import secrets
import socketserver
import sys
import threading
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.client import HTTP_PORT
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from msgspec import Struct

from layerscope.model.errors import LayerscopeError, UsageError
from layerscope.show.report import document
from layerscope.show.report.blocks import as_json
from layerscope.show.report.live_contents import LiveContents
from layerscope.show.report.questions import ANSWERS, Told

LOCAL = "127.0.0.1"
# Under these names a browser reaches this machine; the second one after `ssh -L`.
_NAMES = (LOCAL, "localhost")
_TOKEN_BYTES = 24
# A connection that says nothing for so long is closed, and one that does not take a piece of an
# answer: all of it may take longer on a slow line.
_PATIENCE_S, _PIECE = 30, 1 << 16
_MOST_PARAMETERS = 20
# The header that says how a block is to be read.
ABOUT_HEADER = "Layerscope-Block"
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_TEXT, _BYTES = "text/plain; charset=utf-8", "application/octet-stream"
_NO_TOKEN = "open the whole address that layerscope view has printed, with its token"
_OTHER_NAME = (
    "this server answers to {} only: open the address that layerscope view has printed, and lead "
    "the same port to it from another machine"
)
# How a browser says that a link on a page of another site was followed, such as in the terminal of
# a notebook. What a redirection leads to is still asked for in the name of that page, without
# cookies that are SameSite=Strict; what this page leads to is not.
_LINKED = "cross-site"
_ENTRANCE = b"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=/">
<title>layerscope</title>
<a href="/">Open the report</a>
</html>
"""


# Without an answer the page would take the server for one that has ended.
_FAULT = (
    b"HTTP/1.0 500 Internal Server Error\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Cache-Control: no-store\r\n\r\n"
    b"this is a fault of layerscope view; what is known of it stands where it was started"
)


class Answer(Struct, frozen=True):
    """What is sent back: the state, what the body is, the body, and further headers."""

    status: HTTPStatus
    kind: str
    body: bytes
    headers: Mapping[str, str]


class Server(ThreadingHTTPServer):
    """Serves one recording. `address` opens it; another server beside it has its own cookie."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        contents: LiveContents,
        port: int = 0,
    ) -> None:
        self.contents = contents
        self.page = document.served(contents.title)
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._once: set[str] = set()
        self._lock = threading.Lock()
        try:
            super().__init__((LOCAL, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"port {port} cannot be used: {why}. Choose another one, or leave --port out"
            ) from error

    def server_bind(self) -> None:
        """Bind, without asking for the name of the machine, which may ask the network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOCAL, int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return self._address_with(self._token)

    def address_for_once(self) -> str:
        """An address that works once: who reads the command line of a browser comes too late."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._once.add(token)
        return self._address_with(token)

    def _address_with(
        self,
        token: str,
    ) -> str:
        return f"http://{LOCAL}:{self.server_port}/?token={token}"

    @property
    def cookie_name(self) -> str:
        """Of its own for each port: browsers send cookies of a host to all of its ports."""
        return f"layerscope-{self.server_port}"

    @property
    def hosts(self) -> list[str]:
        """What a request may call this server."""
        with_port = [f"{name}:{self.server_port}" for name in _NAMES]
        # Browsers leave the port of the Web out.
        return [*with_port, *(_NAMES if self.server_port == HTTP_PORT else ())]

    @property
    def cookie(self) -> str:
        """The header with which a browser gets the cookie."""
        return f"{self.cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def takes_token(self, token: str) -> bool:
        """Whether `token` opens the page; one for once does so no more afterwards."""
        if _is_same(token, self._token):
            return True
        with self._lock:
            found = [one for one in self._once if _is_same(token, one)]
            self._once.difference_update(found)
        return bool(found)

    def takes_cookie(self, headers: Iterable[str]) -> bool:
        """Whether the headers of cookies have ours. Those that other servers of this machine gave
        the browser come with it, and not all of them are well formed.
        """
        for cookie in ";".join(headers).split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self.cookie_name and _is_same(value, self._cookie):
                return True
        return False

    def handle_error(
        self,
        request: Any,
        client_address: Any,
    ) -> None:
        """A browser that left is no error; anything else is one of ours, and is not kept back."""
        if isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            return
        super().handle_error(request, client_address)
        with contextlib.suppress(OSError):
            request.sendall(_FAULT)


def _is_same(
    given: str,
    known: str,
) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), known.encode())


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; a connection has one."""

    timeout = _PATIENCE_S

    @property
    def _server(self) -> Server:
        return cast(Server, self.server)

    def do_GET(self) -> None:
        """Answer a question."""
        self._send(self._answer())

    def do_HEAD(self) -> None:
        """Answer a question without the body."""
        self._send(self._answer())

    def _answer(self) -> Answer:
        refusal = self._refusal()
        if refusal:
            return _refused(refusal)
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return _sentence(HTTPStatus.BAD_REQUEST, "this is no address")
        query = parts.query
        if parts.path == "/" and "token" in query:
            tokens = parse_qs(query).get("token", [""])
            return self._with_token(tokens[-1])
        cookies = self.headers.get_all("Cookie", [])
        if not self._server.takes_cookie(cookies):
            return _refused(_NO_TOKEN)
        return self._of_path(parts.path, query)

    def _refusal(self) -> str:
        """Why the request is none of ours; empty: it is."""
        asked = self.headers.get_all("Host", [""])
        hosts = self._server.hosts
        other_name = _OTHER_NAME.format(" and ".join(hosts))
        if len(asked) != 1 or asked[0] not in hosts:
            return other_name
        own = f"http://{asked[0]}"
        # An address with a name in it comes before the header.
        if not self.path.startswith(("/", f"{own}/")):
            return other_name
        origins = self.headers.get_all("Origin", [])
        if any(origin != own for origin in origins):
            return "this server answers its own page only"
        return ""

    def _with_token(
        self,
        token: str,
    ) -> Answer:
        if not self._server.takes_token(token):
            return _refused(f"the token is wrong: {_NO_TOKEN}")
        headers = {"Set-Cookie": self._server.cookie}
        if self.headers.get("Sec-Fetch-Site") == _LINKED:
            return Answer(HTTPStatus.OK, _HTML, _ENTRANCE, headers)
        return Answer(HTTPStatus.SEE_OTHER, _TEXT, b"", {"Location": "/", **headers})

    def _of_path(
        self,
        path: str,
        query: str,
    ) -> Answer:
        """The page, what it knows from the start, a block of those that there are, or the answer
        to a question about the spans of a large recording.
        """
        contents = self._server.contents
        if path == "/":
            return Answer(HTTPStatus.OK, _HTML, self._server.page, {})
        try:
            if path == "/head":
                return Answer(HTTPStatus.OK, _JSON, as_json(contents.head()), {})
            name = unquote(path.removeprefix("/block/"))
            if path.startswith("/block/") and contents.has(name):
                block = contents.block(name)
                about = as_json(block.about).decode("ascii")
                return Answer(HTTPStatus.OK, _BYTES, block.packed, {ABOUT_HEADER: about})
            timeline, question = contents.timeline_of(path)
            if question in ANSWERS and timeline is not None:
                return _told(timeline.answer(question, _parameters(query)))
        except UsageError as error:
            return _sentence(HTTPStatus.BAD_REQUEST, str(error))
        except LayerscopeError as error:
            return _sentence(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return _sentence(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _send(
        self,
        answer: Answer,
    ) -> None:
        self.send_response_only(answer.status)
        body = answer.body
        size = len(body)
        about = {"Content-Type": answer.kind, "Content-Length": str(size)}
        headers = {**_headers(), **about, **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for at in range(0, size, _PIECE):
                piece = body[at : at + _PIECE]
                self.wfile.write(piece)

    def send_error(
        self,
        code: int,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Say in a sentence why a request is not answered, also one with another method."""
        self.close_connection = True
        if code == HTTPStatus.NOT_IMPLEMENTED:
            answer = _sentence(HTTPStatus.METHOD_NOT_ALLOWED, "this server can only be read")
            self._send(Answer(answer.status, _TEXT, answer.body, {"Allow": "GET, HEAD"}))
        else:
            status = HTTPStatus(code)
            self._send(_sentence(status, message or explain or status.description))

    def log_message(self, *_: Any) -> None:
        """Say nothing: what was asked is nobody's business, and tokens do not belong in logs."""


def _parameters(query: str) -> dict[str, str]:
    """The parameters of a question. UsageError: they cannot be told apart."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise UsageError("these are too many parameters") from error
    for name, value in pairs:
        if name in found:
            raise UsageError(f"the parameter {name[:40]!r} is given twice")
        found[name] = value
    return found


def _told(told: Told) -> Answer:
    if told.data is None:
        return Answer(HTTPStatus.OK, _JSON, as_json(told.value), {})
    about = as_json(told.value).decode("ascii")
    headers = {ABOUT_HEADER: about}
    return Answer(HTTPStatus.OK, _BYTES, told.data, headers)


def _refused(why: str) -> Answer:
    return _sentence(HTTPStatus.FORBIDDEN, why)


def _sentence(
    status: HTTPStatus,
    sentence: str,
) -> Answer:
    return Answer(status, _TEXT, sentence.encode("utf-8", "backslashreplace"), {})


def _headers() -> dict[str, str]:
    """What every answer says of itself."""
    policy = document.content_policy(document.OWN_SERVER)
    return {
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
