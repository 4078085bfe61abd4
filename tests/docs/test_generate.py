"""The generated pages: that they say what the code says, and that they are current."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.model import layers
from layerscope.model.schema import TABLES

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("layerscope_docs_generate", DOCS / "generate.py")
assert SPEC
assert SPEC.loader
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@pytest.fixture
def example_parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="layerscope", description="What %(prog)s is.")
    commands = result.add_subparsers()
    table = commands.add_parser(
        "table", help="prints a table", epilog="Next: 100 % more.\n\nlist:\n  a  b"
    )
    table.add_argument("name", help="its name")
    table.add_argument("run", nargs="?", metavar="RUN")
    table.add_argument(
        "--by", choices=["shape", "thread"], default="shape", help="one row for each (%(default)s)"
    )
    table.add_argument("-q", "--quiet", action="store_true", help="a | b")
    table.add_argument("--secret", help=argparse.SUPPRESS)
    commands.add_parser("hidden")  # no help: argparse does not list it either
    return result


def test_a_command_has_its_usage_its_words_and_its_arguments(
    example_parser: argparse.ArgumentParser,
) -> None:
    page = generate.commands_page(example_parser)

    assert "What layerscope is." in page
    assert "## layerscope table\n\n```\nlayerscope table [options] name [RUN]\n```\n" in page
    assert "\nNext: 100 % more.\n\n```\nlist:\n  a  b\n```\n" in page
    assert "| `--by {shape,thread}` | one row for each (shape) |" in page
    assert "| `-q, --quiet` | a \\| b |" in page


def test_what_the_help_hides_the_page_hides(example_parser: argparse.ArgumentParser) -> None:
    page = generate.commands_page(example_parser)

    assert "secret" not in page
    assert "hidden" not in page


def test_every_column_of_every_table_is_on_the_page() -> None:
    page = generate.tables_page()

    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    listed = {
        name: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for name, section in sections.items()
    }
    assert listed == {
        table.name: [column.name for column in table.columns] for table in TABLES.values()
    }


def test_every_layer_is_on_the_page_and_has_one_of_its_own() -> None:
    page = generate.layers_page(DOCS / "layers")

    rows = dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| .+ \| (.+) \|$", page, re.MULTILINE))
    assert set(rows) == {*layers.SPAN_LAYERS, layers.STACKS, layers.COUNTERS, layers.MEMORY}
    kinds = [kind for row in rows.values() for kind in re.findall(r"`(\w+)`", row)]
    assert sorted(kinds) == sorted(layers.KINDS)
    linked = re.findall(r"\]\((\w+\.md)\)", page)
    assert sorted(linked) == sorted(
        file.name for file in (DOCS / "layers").glob("*.md") if file.name != "README.md"
    )


def test_a_page_beside_the_layers_is_linked_with_its_first_sentence(tmp_path: Path) -> None:
    (tmp_path / "shapes.md").write_text(
        "# Shapes\n\n```sh\nlayerscope\n\nrun it.\n```\n\nThe inputs of\noperators. And more.\n\nLast.\n"
    )
    (tmp_path / "README.md").write_text("# Layers\n")

    assert generate.layers_page(tmp_path).endswith(
        "\n- [shapes](shapes.md): The inputs of operators."
    )


def test_check_names_a_page_that_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "pages", lambda: {"a.md": "new\n", "b.md": "same\n"})
    (tmp_path / "a.md").write_text("old\n")
    (tmp_path / "b.md").write_text("same\n")

    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    assert "a.md" in capsys.readouterr().out
    assert (tmp_path / "a.md").read_text() == "old\n"

    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert (tmp_path / "a.md").read_text() == "new\n"
    assert "b.md" not in capsys.readouterr().out


def test_the_generated_pages_are_current() -> None:
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
