"""What the agent says about calls of modules, with stand-ins for torch: driven by C under checkers
of the compiler, and by every Python of this machine with a class that is called as torch.nn.Module
is.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from layerscope.ingest.conversion import RunConversion
from layerscope.recording.run import Run
from layerscope.sources.raw.folder import RawRecording
from tests.native.building import MODULES_DRIVER, build_driver, build_sanitized
from tests.native.door import Door
from tests.native.driven import Drive, Driven
from tests.native.test_agent_under_sanitizers import OPTIONS
from tests.pythons import python_of
from tests.recorded import ask
from tests.recordings import run_info
from tests.repeated import also, first, times

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")

# A class that is called as torch.nn.Module is, and what tells the agent about its instances.
STAND_IN = """
import weakref
held = ctypes.PyDLL(AGENT)
held.ls_module_learn.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
held.ls_module_forget.argtypes = [ctypes.c_void_p, ctypes.py_object]
held.ls_modules_start.argtypes = [ctypes.py_object, ctypes.py_object]
asked = []

class Module:
    def call(self, body=None, *more, **words):
        return body() if body else (more, words)
    __call__ = call

class Other(Module):
    pass

class Calling(Module):
    def __call__(self, body):
        return super().__call__(body)

def resolve(module, outer=None):
    asked.append((module.name, outer and outer.name))
    if module.name.startswith("unknown"):
        return
    held.ls_module_learn(id(module), f"{module.name}\\n{type(module).__name__}\\nfile.py:{len(asked)}".encode())

def make(name, kind=Module):
    module = kind()
    module.name = name
    return module

def watch():
    start()
    assert held.ls_modules_start(Module.__dict__["__call__"], resolve) == 0
"""


def modules(driven: Driven, pid: int | None = None) -> list[tuple[str, str | None]]:
    """(name, path of the module) of every operator by start; the run has ended well."""
    assert (driven.status, driven.stderr) == (0, "")
    rows = driven.rows(
        "SELECT s.name, path FROM spans s JOIN tracks USING (track) JOIN processes USING (process) "
        f"LEFT JOIN modules USING (module) WHERE layer = 'operators' AND pid = {pid or driven.pid} ORDER BY s.start_ns"
    )
    return [(row["name"], row["path"]) for row in rows]


def chaos(driver: Path, folder: Path, threads: int, count: int, seed: int) -> None:
    """Every call is recorded or counted, every operator has the module that it says."""
    door = Door(folder / "raw")
    process = subprocess.Popen(
        [str(driver), door.name, str(threads), str(count), str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **OPTIONS},
    )  # fmt: skip
    stdout, stderr = process.communicate(timeout=240)
    door.close()
    assert (process.returncode, stderr[:6000]) == (0, "")
    calls, operators = [int(word) for word in stdout.split()]
    run = Run.create(folder / "chaos.layerscope", run_info())
    RunConversion(RawRecording(door.raw), run.tables_path).finish({})
    mine = f"track IN (SELECT track FROM tracks JOIN processes USING (process) WHERE pid = {process.pid})"
    (row,) = ask(
        run,
        f"SELECT count(*) FILTER ({mine}) AS recorded, "
        f"(SELECT coalesce(sum(lost), 0)::BIGINT FROM gaps WHERE {mine}) AS lost, "
        "count(*) FILTER (unfinished) AS unfinished, "
        "count(*) FILTER (layer = 'operators' AND name <> coalesce(path, 'outside')) AS wrong, "
        f"count(*) FILTER (layer = 'modules' AND {mine}) AS modules FROM spans LEFT JOIN modules USING (module)",
    )
    assert 0 < row.pop("modules") <= calls
    row["recorded"] += row.pop("lost")
    assert row == {"recorded": calls + operators, "unfinished": 0, "wrong": 0}


@pytest.mark.slow
@pytest.mark.stress
def test_calls_at_random_are_told_apart(tmp_path: Path) -> None:
    chaos(build_driver(tmp_path, driver=MODULES_DRIVER), tmp_path, 3, times(30_000, 10_000), 1)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", *also(["address,undefined"])])
def test_calls_at_random_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    driver = build_sanitized(tmp_path, sanitizer, MODULES_DRIVER)
    for seed in first(1, (21, 22)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        chaos(driver, folder, 4, times(15_000, 8_000), seed)


@pytest.mark.parametrize("version", VERSIONS)
def test_calls_are_recorded_under_every_python_of_this_machine(drive: Drive, version: str) -> None:
    drive.python = python_of(version)
    driven = drive(
        STAND_IN
        + """
watch()
function, code = Module.__call__, Module.__call__.__code__
net, inner, calling = make("Net"), make("Net.inner", Other), make("Calling", Calling)
for _ in range(3000):  # often enough for the interpreter to specialise what it runs
    net(lambda: (op("in net"), inner(lambda: op("in inner")), op("in net again")))
    op("outside")
    calling(lambda: op("in calling"))
assert net(None, 1, 2, three=3) == ((1, 2), {"three": 3})
assert Module.__call__ is function and function.__code__ is code
held.ls_modules_stop()
net(lambda: op("outside"))
assert held.ls_modules_start(Module.__dict__["__call__"], resolve) == 0
net(lambda: op("in net"))
assert asked[:2] == [("Net", None), ("Net.inner", "Net")], asked
"""
    )
    found = modules(driven)
    # A call from Python that names the function itself does not go through the field in 3.11: it is
    # not seen.
    calling = None if version == "3.11" else "Calling"
    assert found[:5] == [
        ("in net", "Net"), ("in inner", "Net.inner"), ("in net again", "Net"), ("outside", None),
        ("in calling", calling),
    ]  # fmt: skip
    assert found == found[:5] * 3000 + [("outside", None), ("in net", "Net")]
    spans = driven.rows(
        "SELECT name, count(*) AS n FROM spans WHERE layer = 'modules' AND name <> 'Calling' GROUP BY name"
    )
    assert {row["name"]: row["n"] for row in spans} == {"Net": 3002, "Net.inner": 3000}


def test_a_module_that_nobody_knows_leaves_its_operators_to_the_one_around(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
watch()
net, unknown, inner = make("Net"), make("unknown"), make("Net.inner")
net(lambda: (op("a"), unknown(lambda: (op("b"), inner(lambda: op("c")))), unknown(lambda: op("d"))))
unknown(lambda: op("e"))
assert asked == [("Net", None), ("unknown", "Net"), ("Net.inner", "Net"), ("unknown", "Net"), ("unknown", None)]
"""
    )
    assert modules(driven) == [
        ("a", "Net"),
        ("b", "Net"),
        ("c", "Net.inner"),
        ("d", "Net"),
        ("e", None),
    ]


def test_a_module_at_the_address_of_another_has_its_own_name(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
watch()
import functools
addresses = set()
for number in range(4000):
    module = make(f"m{number % 7}")
    reference = weakref.ref(module, functools.partial(held.ls_module_forget, id(module)))
    module(lambda: op(f"m{number % 7}"))
    addresses.add(id(module))
assert len(addresses) < 100
many = [make(f"n{number}") for number in range(5000)]
for module in many + many:
    module()
assert len(asked) == 9000
print(len(addresses))
"""
    )
    found = modules(driven)
    assert len(found) == 4000
    assert all(name == path for name, path in found)
    assert driven.rows("SELECT count(*) AS n FROM modules") == [{"n": 5007}]


def test_exceptions_leave_and_those_of_the_program_come_through(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
watch()
def fail(error):
    op("inside")
    raise error
net, inner = make("Net"), make("Net.inner")
for error in (ValueError(), KeyboardInterrupt(), SystemExit(), GeneratorExit()):
    try:
        net(lambda: fail(error))
    except BaseException as caught:
        assert caught is error
    try:
        net(lambda: inner(lambda: fail(error)))
    except BaseException as caught:
        assert caught is error
    op("outside")
class Interrupting(Module):
    @property
    def name(self):
        raise kind(5)
for kind in (KeyboardInterrupt, SystemExit, TimeoutError):
    try:
        Interrupting()(lambda: op("called"))
        assert False
    except kind:
        pass
op("outside")
held.ls_modules_start(Module.__dict__["__call__"], lambda: None)  # cannot be called with a module
make("Other")(lambda: op("called"))
"""
    )
    each = [("inside", "Net"), ("inside", "Net.inner"), ("outside", None)]
    assert modules(driven) == each * 4 + [("outside", None), ("called", None)]


def test_an_exception_that_ends_an_outermost_call_is_marked_at_its_end(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
held.ls_module_raised.argtypes = [ctypes.c_char_p]
held.ls_modules_tell_errors.argtypes = [ctypes.py_object]
def tell(kind, value=None):
    held.ls_module_raised(f"{kind.__name__}: {value}".encode())
def fail():
    op("inside")
    raise ValueError("no")
def catch():
    try:
        inner(fail)
    except ValueError:
        pass
watch()
held.ls_modules_tell_errors(tell)
net, inner = make("Net"), make("Net.inner")
net(catch)  # nobody outside has seen it
for body in (fail, lambda: inner(fail)):
    try:
        net(body)
        assert False
    except ValueError as error:
        assert str(error) == "no"
net()
"""
    )
    assert (driven.status, driven.stderr) == (0, "")
    marked = driven.rows(
        "SELECT m.name, s.name AS call, s.span FROM marks m JOIN spans s ON s.track = m.track "
        "AND s.start_ns + s.dur_ns = m.at_ns AND s.name = 'Net' WHERE m.kind = 'raised' ORDER BY at_ns"
    )
    assert [(row["name"], row["call"]) for row in marked] == [("ValueError: no", "Net")] * 2
    assert driven.rows("SELECT count(*) AS n FROM marks") == [{"n": 2}]


def test_what_generates_is_one_call_around_those_of_its_module(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
held.ls_generations_start.argtypes = [ctypes.py_object, ctypes.py_object]
def generate(self, tokens):
    for _ in range(tokens):
        self(lambda: op("token"))
    op("between")
Module.generate = lambda *all, **words: generate(*all, **words)  # as what decorates it calls it
def resolve_generate(module, outer=None):
    held.ls_module_learn(id(module) + 8, f"{module.name}.generate\\nModule\\nfile.py:1".encode())
watch()
assert held.ls_generations_start(generate, resolve_generate) == 0
net = make("Net")
for _ in range(3):
    net.generate(tokens=4)
net(lambda: op("alone"))
held.ls_module_forget(id(net), None)
net.name = "Other"
net.generate(1)
held.ls_modules_stop()
net.generate(1)
"""
    )
    each = [*[("token", "Net")] * 4, ("between", "Net.generate")]
    last = [("token", "Other"), ("between", "Other.generate"), ("token", None), ("between", None)]
    assert modules(driven) == [*each * 3, ("alone", "Net"), *last]
    inside = driven.rows(
        "SELECT p.name FROM spans s LEFT JOIN spans p ON p.span = s.parent WHERE s.name = 'Net'"
    )
    assert [row["name"] for row in inside] == ["Net.generate"] * 12 + [None]


def test_calls_deeper_than_what_is_kept_are_counted(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
watch()
import sys
sys.setrecursionlimit(5000)
levels = [make(f"level{level}") for level in range(600)]
def down(level):
    levels[level](lambda: down(level + 1) if level < 599 else op("deepest"))
down(0)
levels[0](lambda: op("after"))
"""
    )
    assert driven.losses() == {"too_deep": 89}  # 88 calls and the operator in them
    assert modules(driven) == [("after", "level0")]
    assert driven.rows(
        "SELECT max(depth) AS d, count(*) AS n FROM spans WHERE layer = 'modules'"
    ) == [{"d": 511, "n": 513}]


def test_a_full_ring_loses_calls_and_counts_them(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    driven = drive(
        STAND_IN
        + """
watch()
net, inner = make("Net"), make("Net.inner")
for _ in range(60_000):
    net(inner)
""",
        door,
    )
    (handed,) = driven.door.handed.values()
    (header,) = handed.headers()
    kept = sum(int(record["kind"]) == 5 for record in handed.records(0))
    assert kept > 90_000
    assert kept + int(header["lost_full"]) == 120_000


def test_a_fork_in_a_call_leaves_the_call_to_the_parent(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
watch()
net, inner = make("Net"), make("Net.inner")
children = []
def body():
    op("before")
    children.append(os.fork())
    inner(lambda: op("inside"))
    op("after")
net(body)
op("outside")
net(lambda: op("again"))
if not children[0]:
    os._exit(0)
os.waitpid(children[0], 0)
print(children[0])
"""
    )
    child = int(driven.stdout)
    assert modules(driven) == [
        ("before", "Net"), ("inside", "Net.inner"), ("after", "Net"), ("outside", None), ("again", "Net"),
    ]  # fmt: skip
    assert modules(driven, child) == [
        ("inside", "Net.inner"), ("after", None), ("outside", None), ("again", "Net"),
    ]  # fmt: skip
    assert not driven.losses()
    assert not driven.losses(child)


def test_what_is_not_a_function_of_this_python_is_refused(drive: Drive) -> None:
    driven = drive(
        STAND_IN
        + """
assert held.ls_modules_start(Module.__call__, resolve) == -3  # nothing is prepared
start()
for what in (len, Module, Module.__call__.__code__, "text", 5, Module().__call__):
    assert held.ls_modules_start(what, resolve) == -1, what
held.ls_modules_stop()
make("Net")(lambda: op("outside"))
"""
    )
    assert modules(driven) == [("outside", None)]
