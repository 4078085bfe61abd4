"""Locks of Python: who waits for whom, in each version that is read."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.dump.dumped import dump, running, settled
from tests.native.test_sampling_python import VERSIONS
from tests.pythons import python_of

pytestmark = pytest.mark.usefixtures("native_agent")
BEGIN = """
import sys, threading, time
def begin(name, function):
    threading.Thread(target=function, name=name, daemon=True).start()
"""
DEADLOCK = (
    BEGIN
    + """
one, other = threading.Lock(), threading.Lock()
both = threading.Barrier(2)
def first():
    with one:
        both.wait()
        with other:
            pass
def second():
    with other:
        both.wait()
        with one:
            pass
begin("first", first)
begin("second", second)
print("ready", flush=True)
time.sleep(600)
"""
)
LOCKS = (
    BEGIN
    + """
import contextlib
managed, handled = threading.Lock(), threading.Lock()
lock, twice, plain, free = threading.Lock(), threading.RLock(), threading.Lock(), threading.Lock()
condition, recursive = threading.Condition(threading.Lock()), threading.Condition()
stay = threading.Event()
def nested():
    with free:
        pass
    try:
        with open("/dev/null"), lock:
            for _ in [1]:
                with free:
                    stay.wait()
    finally:
        pass
def rlock():
    with twice:
        with twice:
            stay.wait()
def without():
    plain.acquire()
    stay.wait()
@contextlib.contextmanager
def locked():
    with managed:
        yield
@contextlib.contextmanager
def around():
    with locked():
        yield
def in_manager():
    with around():
        time.sleep(600)
def after_error():
    try:
        with handled:
            raise ValueError
    except ValueError:
        with handled:
            time.sleep(600)
def in_condition():
    with condition:
        time.sleep(600)
def in_recursive():
    with recursive:
        time.sleep(600)
for function in (nested, rlock, without, in_condition, in_recursive, in_manager, after_error):
    begin(function.__name__, function)
time.sleep(0.2)
def wants_lock():
    with lock:
        pass
def wants_rlock():
    twice.acquire()
def wants_condition():
    condition.acquire()
def wants_recursive():
    with recursive:
        pass
begin("wants lock", wants_lock)
begin("wants rlock", wants_rlock)
begin("wants managed", managed.acquire)
begin("wants handled", handled.acquire)
begin("wants free", free.acquire)
begin("wants plain", plain.acquire)
begin("wants condition", wants_condition)
begin("wants recursive", wants_recursive)
print("ready", flush=True)
time.sleep(600)
"""
)


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    return python_of(request.param)


def test_both_owners_of_a_deadlock_are_named(python: str, tmp_path: Path) -> None:
    with running([python], DEADLOCK) as process:
        found = settled(process.pid, tmp_path, ["first", "second"])
    assert (found.wait("first"), found.on("first")) == ("lock", ["second"])
    assert (found.wait("second"), found.on("second")) == ("lock", ["first"])
    numbers = [found.threads[name]["tid"] for name in ("first", "second")]
    (circle,) = found.document["deadlocks"]
    assert [tid for _, tid in circle] == numbers
    assert ("first", 11) in found.lines("first")
    assert found.stack("first")[-1] == "Thread._bootstrap"


def test_owners_are_known_however_a_lock_is_held(python: str, tmp_path: Path) -> None:
    owners = {
        "wants lock": ["nested"],
        "wants rlock": ["rlock"],
        "wants condition": ["in_condition"],
        "wants recursive": ["in_recursive"],
        "wants managed": ["in_manager"],
        "wants handled": ["after_error"],
        "wants free": ["nested"],
        "wants plain": [],
    }
    with running([python], LOCKS) as process:
        found = settled(process.pid, tmp_path, [*owners])
    assert {found.wait(name) for name in owners} == {"lock"}
    assert {name: found.on(name) for name in owners} == owners
    assert "no running function is in a `with` block" in found.threads["wants plain"]["waits_for"]
    assert found.wait("nested") == found.wait("without") == "event"
    assert found.wait("MainThread") == "sleep"
    assert found.document["deadlocks"] == []


def test_a_lock_that_waits_for_itself_is_a_deadlock(tmp_path: Path) -> None:
    text = BEGIN + (
        "lock = threading.Lock()\n"
        "def twice():\n"
        "    with lock:\n"
        "        with lock: pass\n"
        "begin('twice', twice)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with running([sys.executable], text) as process:
        found = settled(process.pid, tmp_path, ["twice"])
    assert found.on("twice") == ["twice"]
    (circle,) = found.document["deadlocks"]
    assert [tid for _, tid in circle] == [found.threads["twice"]["tid"]]


def test_a_circle_that_time_ends_is_no_deadlock(tmp_path: Path) -> None:
    text = DEADLOCK.replace(
        "        with one:\n            pass", "        one.acquire(timeout=600)"
    )
    assert "timeout" in text
    with running([sys.executable], text) as process:
        found = settled(process.pid, tmp_path, ["first", "second"])
    assert (found.on("first"), found.on("second")) == (["second"], ["first"])
    assert found.document["deadlocks"] == []


def test_a_circle_of_the_gil_and_a_mutex_is_a_deadlock(python: str, tmp_path: Path) -> None:
    text = BEGIN + (
        "import ctypes\n"
        "mutex = ctypes.create_string_buffer(64)\n"
        "ctypes.CDLL(None).pthread_mutex_lock(mutex)\n"
        "def keeps_gil():\n"
        "    print('ready', flush=True)\n"
        "    ctypes.PyDLL(None).pthread_mutex_lock(mutex)\n"
        "begin('keeps gil', keeps_gil)\n"
        "time.sleep(0.5)\n"
    )
    with running([python], text) as process:
        found = settled(process.pid, tmp_path, ["MainThread", "keeps gil"])
        until = time.monotonic() + 30
        while not found.document["deadlocks"] and time.monotonic() < until:
            found = settled(process.pid, tmp_path, ["MainThread", "keeps gil"])
    assert (found.wait("keeps gil"), found.on("keeps gil")) == ("mutex", ["MainThread"])
    (circle,) = found.document["deadlocks"]
    names = ("MainThread", "keeps gil")
    assert [tid for _, tid in circle] == [found.threads[name]["tid"] for name in names]


CONDITIONS = (
    BEGIN
    + """
import queue
condition, recursive = threading.Condition(threading.Lock()), threading.Condition()
items, pure = queue.Queue(), threading._PyRLock()
def parks():
    with condition: condition.wait()
def takes_back():
    while True:
        with condition: condition.wait(0.01)
def takes_rlock_back():
    while True:
        with recursive: recursive.wait(0.01)
def holds(lock):
    with lock: time.sleep(600)
begin("parks", parks)
begin("gets", items.get)
begin("back 1", takes_back)
begin("back 2", takes_back)
begin("rlock back", takes_rlock_back)
begin("twin", takes_rlock_back)
for name, lock in (("holds", condition), ("mutex", items.mutex), ("recursive", recursive),
                   ("pure", pure)):
    begin(name, lambda lock=lock: holds(lock))
time.sleep(0.3)
begin("puts", lambda: items.put(1))
begin("wants pure", pure.acquire)
print("ready", flush=True)
time.sleep(600)
"""
)


def test_who_waits_in_a_condition_does_not_hold_its_lock(python: str, tmp_path: Path) -> None:
    owners = {
        "back 1": ["holds"],
        "back 2": ["holds"],
        "rlock back": ["recursive"],
        "puts": ["mutex"],
        "wants pure": ["pure"],
        "parks": [],
        "gets": [],
    }
    with running([python], CONDITIONS) as process:
        found = settled(process.pid, tmp_path, [*owners])
    assert {name: found.on(name) for name in owners} == owners
    assert (found.wait("parks"), found.wait("gets")) == ("condition", "queue")
    assert found.document["deadlocks"] == []


def test_of_two_threads_in_with_blocks_of_a_lock_neither_is_said_to_hold_it(tmp_path: Path) -> None:
    text = BEGIN + (
        "lock = threading.Lock()\n"
        "def lets_go():\n"
        "    with lock:\n"
        "        lock.release()\n"
        "        time.sleep(600)\n"
        "begin('one', lets_go)\n"
        "begin('two', lets_go)\n"
        "time.sleep(0.2)\n"
        "lock.acquire()\n"
        "begin('wants', lock.acquire)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with running([sys.executable], text) as process:
        found = settled(process.pid, tmp_path, ["wants"])
    assert found.on("wants") == []
    assert "2 threads are in `with` blocks of it" in found.threads["wants"]["waits_for"]


QUEUES = (
    BEGIN
    + """
import concurrent.futures, multiprocessing, queue
begin("simple queue", queue.SimpleQueue().get)
shared = multiprocessing.Lock()
shared.acquire()
begin("shared", shared.acquire)
begin("shared semaphore", multiprocessing.Semaphore(0).acquire)
items = queue.Queue()
def gets(): items.get()
def joins():
    getter.join()
getter = threading.Thread(target=gets, name="gets", daemon=True)
getter.start()
begin("joins", joins)
begin("event", threading.Event().wait)
begin("semaphore", threading.Semaphore(0).acquire)
future = concurrent.futures.Future()
begin("future", future.result)
barrier = threading.Barrier(2)
begin("barrier", barrier.wait)
print("ready", flush=True)
time.sleep(600)
"""
)


def test_an_owner_that_has_ended_is_said(tmp_path: Path) -> None:
    text = BEGIN + (
        "lock, over = threading.RLock(), threading.Event()\n"
        # It begins first: a new thread could get the identification of the one that has ended.
        "def wants():\n"
        "    over.wait()\n"
        "    lock.acquire()\n"
        "begin('wants', wants)\n"
        "gone = threading.Thread(target=lock.acquire)\n"
        "gone.start()\n"
        "gone.join()\n"
        "over.set()\n"
        "time.sleep(0.2)\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with running([sys.executable], text) as process:
        found = settled(process.pid, tmp_path, ["wants"])
    assert found.on("wants") == []
    assert "the thread that holds it has ended" in found.threads["wants"]["waits_for"]


def test_what_has_no_owner_is_called_by_what_it_is(python: str, tmp_path: Path) -> None:
    kinds = {
        "gets": "queue",
        "joins": "join",
        "event": "event",
        "semaphore": "semaphore",
        "future": "future",
        "barrier": "barrier",
        "simple queue": "queue",
        "shared": "shared_lock",
        "shared semaphore": "semaphore",
    }
    with running([python], QUEUES) as process:
        found = settled(process.pid, tmp_path, [*kinds])
    assert {name: found.wait(name) for name in kinds} == kinds
    assert found.on("joins") == ["gets"]


def test_the_end_of_a_program_waits_for_its_threads(python: str, tmp_path: Path) -> None:
    text = BEGIN + (
        "lock = threading.Lock()\n"
        "def lasts():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
        "threading.Thread(target=lasts, name='lasts').start()\n"
    )
    with running([python], text) as process:
        found = settled(process.pid, tmp_path, ["MainThread", "lasts"])
    assert (found.wait("MainThread"), found.on("MainThread")) == ("join", ["lasts"])
    (last,) = found.threads["MainThread"]["on"]
    assert last["how"].startswith("is at <string>:")


def test_the_holder_of_the_gil_is_named(python: str, tmp_path: Path) -> None:
    text = BEGIN + (
        "sys.setswitchinterval(1000)\n"
        "def spins():\n"
        "    print('ready', flush=True)\n"
        "    while True: pass\n"
        "begin('spins', spins)\n"
        "time.sleep(0.2)\n"
    )
    with running([python], text) as process:
        found = settled(process.pid, tmp_path, ["MainThread"])
        found = dump(process.pid, tmp_path)
    assert (found.wait("MainThread"), found.on("MainThread")) == ("gil", ["spins"])
    assert found.threads["spins"]["holds_gil"]
    assert found.threads["spins"]["state"] == "running"
    assert ("spins", 8) in found.lines("spins")
