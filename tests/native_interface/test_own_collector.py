"""The library as the collector of ITT, which oneDNN uses: a program's own recording has its
primitives too.
"""

from __future__ import annotations

from pathlib import Path

from tests.native.building import NATIVE, ROOT, build
from tests.native_interface.conftest import STRICT
from tests.native_interface.driven import Driven, alone


def record(folder: Path, interface: Path, **variables: str) -> Driven:
    client = folder / "client.c"
    client.write_text(
        f'#define main use_itt\n#include "{ROOT / "tests" / "native" / "itt_client.c"}"\n'
    )
    sources = [Path(__file__).with_name("own_collector.c"), client, interface]
    flags = (*STRICT, "-Wno-error", "-I", str(NATIVE), f"-Wl,-rpath,{interface.parent}")
    program = build(folder / "driver", sources, *flags)
    return alone(program, folder, "tasks", env=variables)


def test_primitives_lie_below_the_programs_ranges(interface: Path, tmp_path: Path) -> None:
    driven = record(tmp_path, interface, INTEL_LIBITTNOTIFY64=str(interface))
    assert (driven.status, driven.stderr) == (0, "")
    spans = driven.spans()
    assert (spans[0]["name"], spans[0]["domain"]) == ("around", "program")
    assert [span["kind"] for span in spans if span["layer"] == "primitives"] == ["create"] + 3 * [
        "execute"
    ]
    assert all(span["depth"] > 0 for span in spans[1:])
    (described,) = driven.rows(
        "SELECT count(*) AS count FROM args WHERE json LIKE '%cpu,convolution,jit:avx2%'"
    )
    assert described["count"] == 1


def test_another_collector_keeps_what_it_would_get(interface: Path, tmp_path: Path) -> None:
    driven = record(tmp_path, interface, INTEL_LIBITTNOTIFY64="/nowhere/libcollector.so")
    assert driven.stdout == "nobody collects\n"
    assert driven.tree() == [("around", None)]
