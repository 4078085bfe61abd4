"""Where the operators of MXNet's engine come from: their module, their line and their step, without
MXNet.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.native.driven import Drive
from tests.native.mxnet_driven import KNOWN, MODULES, START, drive_with, fake


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that the agent takes for a build that it knows."""
    return fake(tmp_path_factory.mktemp("known"), KNOWN)


MODULE_OF = """SELECT s.name, path FROM spans s LEFT JOIN modules USING (module)
    WHERE s.kind = 'function' AND (starts_with(s.name, '_backward') OR s.name = 'Bulk')
    ORDER BY start_ns"""


def test_a_backward_operator_has_the_module_whose_variables_it_reads(
    drive: Drive, known: Path
) -> None:
    driven = drive_with(
        drive,
        known,
        START + MODULES,
        """
        def first():
            run("Mul", 1, 11, 0, 2)  # reads the input and the weight 11

        def second():
            run("Mul", 2, 12, 0, 3)
            run("Add", 2, 3, 0, 4)

        modules = Module("Net.first", first), Module("Net.second", second)
        net = Module("Net", lambda: [module() for module in modules])
        net()
        run("Mul", 4, 13, 0, 5)  # outside of any
        backward(
            ("_backward_Mul", 50, 4, 13, 0, 51),
            ("_backward_Add", 51, 0, 52),
            ("_backward_Mul", 52, 2, 12, 0, 53),
            ("_backward_Mul", 53, 1, 11, 0, 54),
            ("_backward_Mul", 53, 1, 0, 54),
            ("Bulk", 52, 2, 12, 0, 53),
            ("Bulk", 52, 12, 11, 0, 53),
        )
        """,
    )

    assert [tuple(row.values()) for row in driven.rows(MODULE_OF)] == [
        ("_backward_Mul", None),
        ("_backward_Add", None),  # it reads nothing that Add has read
        ("_backward_Mul", "Net.second"),
        ("_backward_Mul", "Net.first"),
        ("_backward_Mul", "Net.first"),
        ("Bulk", "Net"),  # variable 2 was written by the first and read by the second
        ("Bulk", "Net"),
    ]


def test_a_variable_at_the_address_of_another_is_another_one(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START + MODULES,
        """
        net = Module("Net", lambda: run("Mul", 1, 11, 0, 2))
        net()
        run("DeleteVariable", 0, 1)
        backward(("_backward_Mul", 1, 0, 3), ("_backward_Mul", 11, 0, 3))
        """,
    )

    found = [tuple(row.values()) for row in driven.rows(MODULE_OF)]
    assert found == [("_backward_Mul", None), ("_backward_Mul", "Net")]


def test_an_operator_has_the_line_outside_of_the_library_that_submitted_it(
    drive: Drive, known: Path, tmp_path: Path
) -> None:
    # What lies beside the library is the library's.
    inside = known.parent / "ndarray.py"
    inside.write_text("def invoke(submit):\n    submit()\n")
    program = tmp_path / "train.py"
    program.write_text("def step(invoke, it):\n    (\n        invoke(it)\n    )\n    invoke(it)\n")

    driven = drive_with(
        drive,
        known,
        START,
        f"""
        import runpy, threading
        invoke = runpy.run_path({str(inside)!r})["invoke"]
        step = runpy.run_path({str(program)!r})["step"]
        it = mxnet.fake_operator(text("op"))
        from functools import partial
        submit = partial(mxnet.fake_submit, it)
        thread = threading.Thread(target=step, args=(invoke, submit))
        thread.start()
        thread.join()
        step(invoke, submit)
        for _ in range(4):
            mxnet.fake_run_operator(it)
        """,
    )

    lines = [span["line"] for span in driven.spans() if span["kind"] == "function"]
    assert lines == 2 * [f"{program}:3", f"{program}:5"]


def test_an_operator_has_the_step_of_the_thread_that_submitted_it(
    drive: Drive, known: Path
) -> None:
    driven = drive_with(
        drive,
        known,
        START + MODULES,
        """
        import threading
        both, engine, mine = threading.Barrier(2), Worker(), threading.local()
        operators = [[mxnet.fake_operator(text(name)) for _ in range(4)] for name in "ab"]

        def work():
            both.wait()  # both threads are in a call
            mxnet.fake_submit(mine.left.pop(0))
            both.wait()

        net = Module("Net", work)

        def serve(of):
            mine.left = list(of)
            for _ in of:
                net()

        threads = [threading.Thread(target=serve, args=(of,)) for of in operators]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for it in [it for turn in zip(*operators) for it in turn]:
            engine.do(mxnet.fake_run_operator, it)
        engine.close()
        """,
    )

    rows = driven.rows(
        "SELECT e.name, s.step AS submitted_in, e.step FROM links l JOIN spans s ON s.span = l.from_span "
        "JOIN spans e ON e.span = l.to_span WHERE l.kind = 'submit_execute' ORDER BY e.start_ns"
    )
    assert [row["name"] for row in rows] == ["a", "b"] * 4
    assert sorted(row["step"] for row in rows) == list(range(8))
    assert [row["step"] for row in rows] == [row["submitted_in"] for row in rows]


def test_an_operator_that_runs_when_the_program_is_killed_is_as_complete_as_others(
    drive: Drive, known: Path, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text("def step(submit, it):\n    submit(it)\n")

    driven = drive(
        f"FAKE_MXNET = {str(known)!r}\n{START}{MODULES}"
        + textwrap.dedent(f"""
        import os, runpy
        step = runpy.run_path({str(program)!r})["step"]
        worker = Worker()
        it = mxnet.fake_operator(text("op"))
        inner = Module("Net.inner", lambda: step(mxnet.fake_submit, it))
        net = Module("Net", lambda: inner())
        net()
        worker.do(mxnet.fake_run_operator, it)
        net()
        kill = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), 9))
        ctypes.c_void_p.in_dll(mxnet, "fake_work").value = ctypes.cast(kill, ctypes.c_void_p).value
        worker.do(mxnet.fake_run_operator, it)
        """)
    )

    assert (driven.status, driven.stderr) == (-9, "")
    rows = driven.rows(
        "SELECT unfinished, path, s.line, step, sequence, l.from_span IS NOT NULL AS is_linked "
        "FROM spans s LEFT JOIN modules USING (module) LEFT JOIN links l ON l.to_span = s.span "
        "WHERE s.name = 'op' AND s.kind = 'function' ORDER BY s.start_ns"
    )
    line = f"{program}:2"
    assert [tuple(row.values()) for row in rows] == [
        (False, "Net.inner", line, 0, 0, True),
        (True, "Net.inner", line, 1, 1, True),
    ]
