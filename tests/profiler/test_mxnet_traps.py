"""What makes a program crash or lose its data with MXNet's own profiler does neither here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow
IMPORT = "import json\nfrom layerscope import profiler\n"
# An iteration of a small network.
NETWORK = """
import time
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
arrays = mx.np if mx.__version__.startswith("2") else mx.nd
net = nn.HybridSequential()
for layer in (nn.Conv2D(4, 5), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(10)):
    net.add(layer)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})


def train(steps=1):
    for _ in range(steps):
        with autograd.record():
            loss = net(arrays.ones((8, 1, 28, 28))).sum()
        loss.backward()
        trainer.step(8)
        mx.nd.waitall()
    time.sleep(0.1)  # the last operator is over for us a little later than for who waits for it


def counted(name, **how):
    times = json.loads(profiler.dumps(format="json", **how))["Time"]
    return sum(of[name]["Count"] for of in times.values() if name in of)


def written(file, name="Convolution"):
    events = json.load(open(file))["traceEvents"]
    return sum(e["name"] == name and e.get("cat", "").startswith("operators") for e in events)


"""


def test_set_state_before_mxnet_is_imported(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    """Primitives come without `layerscope run`, of what runs alone; sums turn bulks off."""
    text = IMPORT + "profiler.set_config(profile_all=True, aggregate_stats=True)\n"
    text += "profiler.set_state('run')\n" + NETWORK
    text += (
        "train(2); profiler.pause(); train(5); profiler.resume(); train(1)\n"
        "profiler.set_state('stop'); train(5)\n"
        "print([counted(name) for name in ('convolution', '_backward_Convolution', 'ImperativeBulk')])\n"
        "profiler.set_config(profile_all=True, aggregate_stats=False)\n"
        "profiler.set_state('run'); train(1); profiler.set_state('stop')\n"
        "print(counted('ImperativeBulk') > 0)\n"
    )
    done = library.run(mxnet_python, text, tmp_path, "-W", "ignore")

    assert done.stdout.splitlines() == ["[6, 3, 0]", "True"]
    found = library.recorded(tmp_path / "program.layerscope")
    assert found.rows("SELECT * FROM problems") == found.rows("SELECT * FROM gaps") == []


def test_an_engine_without_threads(mxnet_python: str, native_agent: Path, tmp_path: Path) -> None:
    """It executes each operator where it is submitted."""
    text = IMPORT + NETWORK + "train(1)\nprofiler.set_config(profile_all=True)\n"
    text += (
        "profiler.set_state('run'); train(2); profiler.pause(); train(5); profiler.resume(); train(1)\n"
        "profiler.set_state('stop'); train(5)\n"
        "print([counted(name) for name in ('Convolution', '_backward_Convolution')])\n"
    )
    done = library.run(
        mxnet_python, text, tmp_path, "-W", "ignore", MXNET_ENGINE_TYPE="NaiveEngine"
    )

    assert done.stdout == "[3, 3]\n"
    found = library.recorded(tmp_path / "program.layerscope")
    threads = found.rows(
        "SELECT DISTINCT tid = pid AS is_main FROM spans JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE spans.name = 'Convolution'"
    )
    assert threads == [{"is_main": True}]


def test_start_and_stop_while_other_threads_are_inside_calls(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    """With MXNet's own profiler, which has an entry of each call, the process aborts."""
    text = NETWORK + IMPORT
    text += (
        "import threading\n"
        "over = threading.Event()\n"
        "def work():\n"
        "    while not over.is_set():\n"
        "        a = mx.nd.ones((300, 300)); mx.nd.dot(a, a).wait_to_read()\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for _ in range(6):\n"
        "    steer = threading.Thread(target=profiler.set_state, args=('run',)); steer.start(); steer.join()\n"
        "    mx.nd.cos(mx.nd.ones((9,))).wait_to_read(); time.sleep(0.05)\n"
        "    profiler.set_state('stop')\n"
        "    mx.nd.cos(mx.nd.ones((9,))).wait_to_read()\n"
        "over.set()\n"
        "for thread in threads: thread.join()\n"
        "print(counted('cos'), counted('dot') > 0, counted('MXNDArrayWaitToRead') > 6)\n"
    )
    done = library.run(mxnet_python, text, tmp_path, "-W", "ignore")

    assert done.stdout == "6 True True\n"
    found = library.recorded(tmp_path / "program.layerscope")
    assert found.rows("SELECT * FROM gaps") == []


def test_every_order_of_calls_and_mxnets_profiler_beside_ours(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    text = NETWORK + IMPORT
    text += (
        "profiler.set_config(filename='first.json', continuous_dump=False)\n"
        "profiler.dump(); print(written('first.json'))\n"  # before run
        "profiler.set_state('run'); train(1); mx.nd.waitall()\n"
        "print(counted('Convolution', reset=True), counted('Convolution'))\n"  # without aggregates
        "train(1); profiler.dump(); print(written('first.json'))\n"
        "profiler.set_config(filename='second.json', gpu_memory_profile_filename_prefix='x')\n"
        "train(3); profiler.set_state('stop')\n"  # after a finished dump, with another file
        "profiler.dump(); profiler.dump(finished=False); profiler.dump()\n"
        "print(written('first.json'), written('second.json'))\n"
        "mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename='mxnet.json')\n"
        "profiler.set_config(filename='third.json')\n"
        "profiler.set_state('run'); mx.profiler.set_state('run'); train(1)\n"
        "mx.profiler.set_state('stop'); train(1); profiler.set_state('stop')\n"
        "mx.profiler.set_state('run'); train(1); mx.profiler.set_state('stop')\n"
        "theirs = json.loads(mx.profiler.dumps(format='json'))['Time']['operator']\n"
        "mx.profiler.dump(); profiler.dump()\n"
        "print(theirs['Convolution']['Count'], written('third.json'))\n"
    )
    done = library.run(mxnet_python, text, tmp_path, "-W", "ignore::DeprecationWarning")

    assert done.stdout.splitlines() == ["0", "1 0", "2", "2 3", "2 2"]
    ours = [line for line in done.stderr.splitlines() if "RuntimeWarning: layerscope" in line]
    assert len(ours) == 1
    assert "before dump()" in ours[0]
    assert json.loads((tmp_path / "mxnet.json").read_bytes())
    found = library.recorded(tmp_path / "first.layerscope")
    assert found.rows("SELECT * FROM gaps") == []


def test_continuous_dump_is_whole_at_any_time(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    text = NETWORK + IMPORT
    text += (
        "import os, sys, time\n"
        "profiler.set_config(filename='out.json', continuous_dump=True, dump_period=0.2)\n"
        "profiler.set_state('run')\n"
        "end, seen = time.monotonic() + 60, set()\n"
        "while not seen and time.monotonic() < end:\n"
        "    train(1)\n"
        "    if os.path.exists('out.json'): seen.add(written('out.json'))\n"
        "print(seen.pop() > 0); sys.stdout.flush()\n"
        "os._exit(0)\n"
    )
    done = library.run(mxnet_python, text, tmp_path, "-W", "ignore")

    assert done.stdout == "True\n"
    library.finished(tmp_path / "out.layerscope")
    names = [
        event["name"] for event in json.loads(library.written(tmp_path / "out.json"))["traceEvents"]
    ]
    assert names.count("Convolution") >= 2


def test_what_is_freed_and_was_not_seen_to_be_allocated_does_not_go_below_nothing(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    text = "import mxnet as mx\nkept = mx.nd.ones((1000, 1000)); mx.nd.waitall()\n" + IMPORT
    text += (
        "def memory():\n"
        "    return json.loads(profiler.dumps(format='json'))['Memory']['Device Storage']['Memory: cpu/0']\n"
        "profiler.set_state('run')\n"
        "kept = None; mx.nd.waitall()\n"
        "more = mx.nd.ones((500, 500)); mx.nd.waitall(); profiler.pause()\n"
        "more = None; mx.nd.waitall()\n"  # it counts while nothing is recorded
        "profiler.resume(); other = mx.nd.ones((250, 500)); mx.nd.waitall()\n"
        "profiler.set_state('stop'); found = memory()\n"
        "print(found['Min'], found['Max'])\n"
    )
    done = library.run(mxnet_python, text, tmp_path, "-W", "ignore")

    least, most = map(float, done.stdout.split())
    assert least >= 0
    assert most == 1000
