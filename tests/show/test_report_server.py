"""The server of `layerscope view`: whom it answers, and what it answers."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import as_json
from layerscope.show.report.contents import ReportContents
from layerscope.show.report.live_contents import LiveContents
from layerscope.show.report.server import LOCAL, Server, _Handler
from tests.recordings import MS, Recording
from tests.show.report_page import serving


@contextmanager
def served(path: Path, port: int = 0) -> Iterator[Server]:
    """A server of a recording with two spans."""
    recording = Recording()
    outer = recording.add_span("outer", 0, 3 * MS)
    recording.add_span("inner", MS, MS, outer)
    run = recording.write(path)
    with serving(run, port) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "train.layerscope") as one:
        yield one


class Answered:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answered:
    """Ask as a program would; `Host` is right unless it is given."""
    connection = http.client.HTTPConnection(LOCAL, server.server_port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        return Answered(connection.getresponse())
    finally:
        connection.close()


def cookie_of(server: Server) -> str:
    """The cookie that the printed address brings."""
    answer = ask(server, server.address.partition(str(server.server_port))[2])
    assert answer.status == 303
    assert answer.headers["Location"] == "/"
    return answer.headers["Set-Cookie"].partition(";")[0]


def ask_as_user(server: Server, path: str, method: str = "GET", **headers: str) -> Answered:
    return ask(server, path, method, **{"Cookie": cookie_of(server), **headers})


def test_only_this_machine_reaches_it(server: Server) -> None:
    assert server.socket.getsockname()[0] == LOCAL
    assert server.address.startswith(f"http://{LOCAL}:{server.server_port}/?token=")


def test_the_token_brings_a_cookie_that_no_script_and_no_other_site_can_use(
    server: Server,
) -> None:
    answer = ask(server, server.address.partition(str(server.server_port))[2])

    name, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert name.startswith(f"layerscope-{server.server_port}=")
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert answer.body == b""


@pytest.mark.parametrize("token", ["", "wrong", "%00", "\u00e9", "a" * 5000])
def test_a_wrong_token_is_refused(server: Server, token: str) -> None:
    answer = ask(server, f"/?token={quote(token)}")

    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers
    assert "open the whole address" in answer.text


@pytest.mark.parametrize("path", ["/", "/head", "/block/spans", "/block/nothing", "/nothing"])
@pytest.mark.parametrize(
    "cookie", [None, "", "layerscope={}", "{name}=wrong", "{name}=", "=;;,\x7f"]
)
def test_without_the_cookie_nothing_is_told(server: Server, path: str, cookie: str | None) -> None:
    given = {} if cookie is None else {"Cookie": cookie.replace("{name}", server.cookie_name)}

    answer = ask(server, path, **given)

    assert answer.status == 403
    assert "open the whole address" in answer.text


def test_the_cookie_of_another_server_is_refused(server: Server, tmp_path: Path) -> None:
    with served(tmp_path / "other.layerscope") as other:
        value = cookie_of(other).partition("=")[2]
        assert ask(server, "/head", Cookie=f"{server.cookie_name}={value}").status == 403


@pytest.mark.parametrize(
    "others", ['{"a": 1}', "_xsrf=2|a:b|\"", 'user-8888="2|1:0|a=="', "a b=c, d", "\xff=\xfe", "=", ";;"]
)  # fmt: skip
def test_cookies_of_other_servers_of_this_machine_hinder_nobody(
    server: Server, others: str
) -> None:
    """A browser sends those of all ports."""
    own = cookie_of(server)

    assert ask(server, "/head", Cookie=f"{others}; {own}; {others}").status == 200
    assert ask(server, "/head", Cookie=others).status == 403


def test_a_name_is_given_once(server: Server) -> None:
    """Whatever stands between might look at the other one."""
    own = f"{LOCAL}:{server.server_port}"
    lines = {
        "right": ("GET /head HTTP/1.1", f"Host: {own}"),
        "right, in the address": (f"GET http://{own}/head HTTP/1.1", f"Host: {own}"),
        "twice": ("GET /head HTTP/1.1", f"Host: {own}", "Host: example.org"),
        "in the address": ("GET http://example.org/head HTTP/1.1", f"Host: {own}"),
        "longer": (f"GET http://{own}.example.org/head HTTP/1.1", f"Host: {own}"),
        "none": ("GET /head HTTP/1.0",),
        "old": ("GET /head",),
    }
    found = {name: said(server, *words) for name, words in lines.items()}

    refused = sorted(name for name, text in found.items() if b'"format"' not in text)
    assert refused == ["in the address", "longer", "none", "old", "twice"]


def said(server: Server, *lines: str) -> bytes:
    """What comes back for the lines of a request with the cookie."""
    text = "\r\n".join([*lines, f"Cookie: {cookie_of(server)}", "", ""])
    with socket.create_connection((LOCAL, server.server_port), timeout=30) as connection:
        connection.sendall(text.encode())
        with connection.makefile("rb") as answer:
            return answer.read()


def test_an_address_that_is_too_long_is_called_so(server: Server) -> None:
    answer = ask_as_user(server, "/statistics?by=name&classes=" + "A" * 70_000)

    assert answer.status == 414
    assert "too long" in answer.text


@pytest.mark.parametrize(
    "host", ["", "example.org", "localhost", "127.0.0.1", "example.org:{port}", "127.0.0.1:1",
             "127.0.0.2:{port}", "[::1]:{port}", "127.0.0.1:{port}.example.org"]
)  # fmt: skip
def test_another_host_is_refused(server: Server, host: str) -> None:
    """A name of somebody else's that leads here is how a page of theirs would read ours."""
    named = host.replace("{port}", str(server.server_port))

    assert ask_as_user(server, "/", Host=named).status == 403
    token = server.address.partition(str(server.server_port))[2]
    assert ask(server, token, Host=named).status == 403


def test_at_the_port_of_the_web_browsers_leave_it_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOCAL not in server.hosts
    monkeypatch.setattr(server, "server_port", 80)
    assert server.hosts == [f"{LOCAL}:80", "localhost:80", LOCAL, "localhost"]


def test_after_ssh_it_may_be_called_localhost(server: Server) -> None:
    host = f"localhost:{server.server_port}"

    assert ask_as_user(server, "/", Host=host).status == 200
    assert ask_as_user(server, "/head", Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "origin", ["null", "", "https://example.org", "http://example.org", "{own}1"]
)
def test_another_origin_is_refused(server: Server, origin: str) -> None:
    own = f"http://{LOCAL}:{server.server_port}"

    assert ask_as_user(server, "/head", Origin=origin.replace("{own}", own)).status == 403
    assert ask_as_user(server, "/head", Origin=own).status == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE"]
)
def test_it_can_only_be_read(server: Server, method: str) -> None:
    answer = ask_as_user(server, "/", method)

    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path", ["/nothing", "/block/", "/block/nothing", "/block/../head", "/..", "/%2e%2e/run.json", "/head/",
             "/block/spans/", "/page.js", "/block/%00", "/block/spans%0d%0aX:%20y", "/HEAD"]
)  # fmt: skip
def test_there_is_nothing_beside_the_list(server: Server, path: str) -> None:
    answer = ask_as_user(server, path)

    assert answer.status in (404, 400)
    assert str(server.contents.title) not in answer.text


def test_every_answer_forbids_what_it_need_not_allow(server: Server) -> None:
    for answer in (
        ask_as_user(server, "/"),
        ask_as_user(server, "/head"),
        ask_as_user(server, "/block/spans"),
        ask_as_user(server, "/nothing"),
        ask_as_user(server, "/", "POST"),
        ask(server, "/"),
    ):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "Python" not in str(answer.headers)


def test_the_page_has_no_data_and_no_token(server: Server) -> None:
    page = ask_as_user(server, "/").text

    assert page.startswith("<!DOCTYPE html>")
    assert 'id="head"' not in page
    assert "token" not in page.partition("<script>")[0]


def test_its_blocks_are_those_of_the_report(server: Server) -> None:
    head = json.loads(ask_as_user(server, "/head").body)
    with Reader(server.contents._reader.run) as reader:
        contents = ReportContents(reader, is_live=True)
        expected = {block.name: block for block in contents.blocks()}
        known = {**contents.head(), "blocks": dict.fromkeys(expected)}

    assert head == json.loads(as_json(known))
    assert list(head["blocks"]) == list(expected)
    for name, block in expected.items():
        answer = ask_as_user(server, f"/block/{quote(name)}")
        assert answer.status == 200
        assert json.loads(answer.headers["Layerscope-Block"]) == block.about
        assert zlib.decompress(answer.body, -15) == zlib.decompress(block.packed, -15)


def test_a_head_request_has_no_body(server: Server) -> None:
    answer = ask_as_user(server, "/", "HEAD")

    assert answer.status == 200
    assert answer.body == b""
    assert int(answer.headers["Content-Length"]) == len(ask_as_user(server, "/").body)


def test_an_address_for_once_works_once(server: Server) -> None:
    path = server.address_for_once().partition(str(server.server_port))[2]

    assert [ask(server, path).status for _ in range(3)] == [303, 403, 403]
    assert cookie_of(server)


def test_many_ask_at_once_and_a_block_is_made_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    whole = ReportContents.made_with

    def counted(contents: ReportContents, name: str) -> object:
        made.append(name)
        return whole(contents, name)

    monkeypatch.setattr(ReportContents, "made_with", counted)
    cookie = cookie_of(server)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(server, "/block/spans", Cookie=cookie), range(64)))

    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert made == ["spans"]


def test_a_fault_of_ours_is_answered_and_told(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A page without an answer would say that the server has ended."""
    cookie = cookie_of(server)
    monkeypatch.setattr(LiveContents, "head", lambda self: 1 / 0)

    answer = ask(server, "/head", Cookie=cookie)

    assert answer.status == 500
    assert "fault of layerscope view" in answer.text
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert ask(server, "/", Cookie=cookie).status == 200


def test_a_recording_that_is_gone_is_one_sentence(server: Server, tmp_path: Path) -> None:
    assert ask_as_user(server, "/block/spans").status == 200
    shutil.rmtree(tmp_path / "train.layerscope")

    answer = ask_as_user(server, "/block/samples")

    assert answer.status == 503
    assert answer.text.endswith("is not there any more. Put it back, or end layerscope view")
    assert ask_as_user(server, "/block/spans").status == 200  # what was made is kept


def test_another_recording_in_its_place_is_not_shown(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "train.layerscope"
    path.rename(tmp_path / "before.layerscope")
    Recording().write(path)

    answer = ask_as_user(server, "/head")

    assert answer.status == 503
    assert "have changed" in answer.text


def test_somebody_who_says_nothing_or_nonsense_hinders_nobody(server: Server) -> None:
    with ExitStack() as stack:
        for words in (b"", b"GET", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000):
            other = stack.enter_context(socket.create_connection((LOCAL, server.server_port)))
            other.sendall(words)
        assert ask_as_user(server, "/").status == 200


def test_nobody_has_to_take_all_of_an_answer_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket gives up a write that takes longer than its timeout: on a slow line each does."""
    written: list[int] = []
    before = _Handler.setup

    def setup(handler: _Handler) -> None:
        before(handler)
        write = handler.wfile.write

        def counted(data: memoryview) -> int:
            written.append(len(data))
            return write(data)

        handler.wfile.write = counted

    monkeypatch.setattr(_Handler, "setup", setup)
    monkeypatch.setattr(server, "page", bytes(range(256)) * 8192)

    assert ask_as_user(server, "/").body == server.page
    assert max(written) <= 1 << 16


def test_a_port_that_is_taken_is_said(server: Server, tmp_path: Path) -> None:
    with (
        pytest.raises(
            UsageError, match=r"cannot be used: Address already in use\. Choose another one"
        ),
        served(tmp_path / "other.layerscope", server.server_port),
    ):
        pass
