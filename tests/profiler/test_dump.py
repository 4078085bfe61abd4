"""`dump`, `dumps` and `set_config`: complete files and right sums, whatever the order of the
calls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential import Differential, environment
from tests.profiler import library
from tests.profiler.library import NETWORK

pytestmark = pytest.mark.slow
IMPORT = "from layerscope import profiler\n"
STEP = "Optimizer.step#SGD.step"


def events(file: Path, name: str) -> list[dict[str, Any]]:
    """The finished spans called `name` in a Chrome trace."""
    return [
        event
        for event in json.loads(library.written(file))["traceEvents"]
        if event.get("name") == name
    ]


def test_dump_before_run_twice_after_stop_and_into_a_folder_that_is_not_there(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = NETWORK + IMPORT
    text += (
        "import json, os\n"
        "def count(file='no/such/folder/out.json'):\n"
        "    events = json.load(open(file))['traceEvents']\n"
        f"    return sum(event['name'] == '{STEP}' for event in events)\n"
        "profiler.set_config(filename='no/such/folder/out.json', continuous_dump=False)\n"
        "profiler.dump(); print(count())\n"
        "profiler.set_state('run'); train(2); profiler.dump(finished=False); print(count())\n"
        "profiler.dump(finished=False); print(count())\n"
        "train(3); profiler.set_state('stop'); profiler.dump(); print(count())\n"
        "profiler.dump(); print(count())\n"
        "profiler.set_config(filename='second.json', aggregate_stats=True)\n"
        "profiler.set_state('run'); train(4); profiler.set_state('stop'); profiler.dump()\n"
        "print(count('second.json'), count())\n"
        "print(sorted(os.listdir('.')))\n"
    )
    done = library.run(program_python, text, tmp_path)

    lines = done.stdout.splitlines()
    assert lines[:5] == ["0", "2", "2", "5", "5"]
    assert lines[5] == "4 5"
    assert lines[6] == "['no', 'out.layerscope', 'program.py', 'second.json']"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "before dump()" in done.stderr


def test_a_trace_that_cannot_be_written_is_a_warning_and_the_recording_is_kept(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    (tmp_path / "file").write_text("")
    text = NETWORK + IMPORT
    text += (
        "profiler.set_config(filename='file/out.json', continuous_dump=False)\n"
        "profiler.set_state('run'); train(); profiler.set_state('stop'); profiler.dump()\n"
    )
    done = library.run(program_python, text, tmp_path)

    assert done.stderr.count("RuntimeWarning") == 1
    assert "file/out.json could not be written" in done.stderr
    found = library.recorded(tmp_path / "out.layerscope")
    assert found.value(f"SELECT count(*) FROM spans WHERE name = '{STEP}'") == 3


def test_changing_the_file_in_the_middle_leaves_two_complete_ones(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """The first gets what ran while it was named, the second the rest, without any `dump`."""
    text = NETWORK + IMPORT
    text += (
        "profiler.set_config(filename='first.json')\n"
        "profiler.set_state('run'); train(2)\n"
        "profiler.set_config(filename='second.json'); train(3)\n"
    )
    library.run(program_python, text, tmp_path)
    library.finished(tmp_path / "first.layerscope")

    assert len(events(tmp_path / "first.json", STEP)) == 2
    assert len(events(tmp_path / "second.json", STEP)) == 3


def test_continuous_dump_writes_while_the_program_runs(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = NETWORK + IMPORT
    text += (
        "import json, os, time\n"
        "profiler.set_config(filename='out.json', continuous_dump=True, dump_period=0.2)\n"
        "profiler.set_state('run'); train(2)\n"
        "end = time.monotonic() + 60\n"
        "while not os.path.exists('out.json') and time.monotonic() < end:\n    time.sleep(0.05)\n"
        "print(len(json.load(open('out.json'))['traceEvents']) > 10)\n"
    )
    assert library.run(program_python, text, tmp_path).stdout == "True\n"


def test_dumps_counts_what_ran_and_a_reset_forgets_it(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = NETWORK + IMPORT
    text += (
        "import json\n"
        "domain = profiler.Domain('mine')\n"
        "counter = domain.new_counter('counted', 7)\n"
        "def show(**how):\n"
        "    print(json.dumps(json.loads(profiler.dumps(format='json', **how))))\n"
        "profiler.set_state('run')\n"
        "train(2)\n"
        "for value in (2, 4, 9):\n    counter.set_value(value)\n"
        "with domain.new_task('a name that is longer than the column there'):\n    pass\n"
        "profiler.set_state('stop')\n"
        "train(9)\n"
        "show(); show(reset=True); show()\n"
        "profiler.set_state('run'); train(1); show()\n"
        "print(profiler.dumps())\n"
    )
    done = library.run(program_python, text, tmp_path)

    first, second, empty, last = map(json.loads, done.stdout.splitlines()[:4])
    assert first["Time"] == second["Time"]
    assert first["Unit"] == {"Time": "ms", "Memory": "kB", "Counter": "value"}
    step = first["Time"]["operator"][STEP]
    assert step["Count"] == 2
    assert step["Avg"] == pytest.approx(step["Total"] / 2)
    assert step["Min"] <= step["Avg"] <= step["Max"]
    assert first["Counter"] == {"mine": {"counted": {"Count": 3, "Min": 2, "Max": 9, "Avg": 5}}}
    assert list(first["Time"]["mine"]) == ["a name that is longer than the column there"]
    assert first["Memory"]["Device Storage"]["Memory: cpu/0"]["Max"] > 50_000
    assert (empty["Time"], empty["Counter"]) == ({}, {})
    assert last["Time"]["operator"][STEP]["Count"] == 1
    table = done.stdout.split("Profile Statistics:\n", 1)[1]
    assert table.startswith(
        "\tNote the difference in units for different entries.\n\noperator\n=================\nName "
    )


@pytest.mark.stress
def test_under_run_the_same_calls_steer_the_same_recording(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)
    text = NETWORK
    text += (
        "import json, sys\nfrom layerscope import profiler\nimport layerscope\n"
        "profiler.set_config(filename='out.json')\n"
        "profiler.set_state('run'); train(2); profiler.set_state('stop'); train(10); profiler.set_state('run')\n"
        "train(1)\n"
        "with profiler.Event('mine'): layerscope.step()\n"
        "profiler.dump(finished=False)\n"
        f"print(json.loads(profiler.dumps(format='json'))['Time']['operator']['{STEP}']['Count'])\n"
        f"print(sum(e['name'] == '{STEP}' for e in json.load(open('out.json'))['traceEvents']))\n"
        "print(sorted(name for name in sys.modules if name.startswith('layerscope')))\n"
        "try:\n    layerscope.open_run('x')\nexcept ImportError as error:\n    print(error)\n"
    )
    done = differential.record([program_python, "-c", text], env=environment())

    assert (done.status, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["3", "3"]
    assert "layerscope.cli" not in lines[2]
    assert lines[3].startswith("this Python cannot read recordings")
    recorded = differential.recorded()
    # train() runs once before the profiler is asked for anything: under `run` that is recorded too.
    assert recorded.count(STEP) == 3 + 2 + 1
    assert recorded.count("mine") == 1
    kinds = [row["kind"] for row in recorded.rows("SELECT kind FROM marks ORDER BY at_ns")]
    assert kinds == ["paused", "resumed", "step"]
    assert recorded.problems() == {}


def test_a_program_that_never_names_a_file_gets_none(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    library.run(program_python, IMPORT + "profiler.set_state('run')\n" + NETWORK, tmp_path)
    library.finished(tmp_path / "program.layerscope")

    assert not (tmp_path / "profile.json").exists()
