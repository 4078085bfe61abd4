"""The page as a file: what the browser may run, and that no name is taken for anything else."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.recording.reader import Reader
from layerscope.show.report import document
from layerscope.show.report.blocks import json_block
from layerscope.show.report.contents import ReportContents
from tests.recordings import MS, Recording
from tests.show.report_page import ReportPage

HOSTILE = (
    "</script><script>alert(1)</script>", "<!--<script>", "]]>", "\"'`${}\\", "a\0b", "\u202etxt\u2066",
    "\U0001f600", "&lt;b&gt;&#x3c;", "\u2028\u2029", "\ufeff",
)  # fmt: skip


def page_of(folder: Path, title: str, head: dict[str, Any], *values: Any) -> ReportPage:
    path = folder / "page.html"
    blocks = [json_block(f"value {at}", value) for at, value in enumerate(values)]
    with path.open("wb") as stream:
        document.write(title, head, blocks, stream)
    return ReportPage(path)


def hash_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_this_script_and_this_style_alone(tmp_path: Path) -> None:
    page = page_of(tmp_path, "train", {})

    (script,) = page.scripts
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'sha256-{hash_of(script)}'",
        "style-src": f"'sha256-{hash_of(page.style)}'",
        "connect-src": "'none'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page.links == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_wherever_it_stands(name: str, tmp_path: Path) -> None:
    head = {"run": {"name": name}, name: [name]}

    page = page_of(tmp_path, name, head, {name: name})

    assert len(page.scripts) == 1
    assert page.head == head | {"blocks": {"value 0": {"kind": "json"}}}
    assert page.block("value 0") == {name: name}
    if name.isprintable():
        assert page.title == name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(codec=None)))
def test_any_text_is_text(name: str, tmp_path: Path) -> None:
    page = page_of(tmp_path, name, {"name": name}, name)

    assert page.head["name"] == page.block("value 0") == name
    assert len(page.scripts) == 1


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_data_hold_nothing_that_opens_an_element(value: Any) -> None:
    assert "<" not in document.as_data(value)


def test_the_page_of_a_server_may_ask_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(document.served("train") + b'<script id="head">{}</script>')

    page = ReportPage(path)

    assert "connect-src 'self'" in page.policy
    assert page.policy.replace("'self'", "'none'") == page_of(tmp_path, "train", {}).policy


def test_all_of_a_page_is_ascii_but_its_names(tmp_path: Path) -> None:
    """So that no encoding can turn data into markup."""
    recording = Recording()
    recording.add_span("\u00fcber </script>", 0, MS)
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        contents = ReportContents(reader)
        stream = io.BytesIO()
        document.write(reader.run.name, contents.head(), contents.blocks(), stream)
    text = stream.getvalue().decode()
    data = text.partition('<script type="application/json"')[2].rpartition("<script>")[0]
    assert re.findall(r"</script>", data) == ["</script>"] * (len(contents.names) + 1)
