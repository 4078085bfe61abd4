"""A program that knows who calls whom in it: functions of different lengths that call each other in
all ways, deep and through C. Prints the pairs of caller and callee that there can be, then works
until its standard input ends.
"""

from __future__ import annotations

import functools
import json
import sys
import threading

CALLS = {
    ("<module>", "work"),
    ("work", "Event.is_set"),
    ("work", "work_once"),
    ("work_once", "left"),
    ("work_once", "right"),
    ("work_once", "deep"),
    ("work_once", "sorted_by"),
    ("left", "spin"),
    ("right", "spin"),
    ("left", "middle"),
    ("right", "middle"),
    ("middle", "short"),
    ("middle", "spin"),
    ("deep", "deep"),
    ("deep", "short"),
    ("sorted_by", "key"),
    ("key", "short"),
    ("sorted_by", "reduced"),
    ("reduced", "spin"),
}
has_ended = threading.Event()


def spin(rounds: int) -> int:
    x = 0
    for i in range(rounds):
        x += i * i
    return x


def short() -> int:
    return sum((1, 2, 3))


def middle() -> None:
    for _ in range(50):
        short()
    spin(300)


def left() -> None:
    spin(3000)
    middle()


def right() -> None:
    middle()
    spin(1000)


def deep(depth: int) -> int:
    return deep(depth - 1) if depth else short()


def key(value: int) -> int:
    return value * short()


def reduced(one: int, other: int) -> int:
    return spin(200) + one + other


def sorted_by() -> None:
    sorted(range(40), key=key)
    functools.reduce(reduced, range(10))


def work_once() -> None:
    left()
    right()
    deep(40)
    sorted_by()


def work() -> None:
    while not has_ended.is_set():
        work_once()


def watch() -> None:
    sys.stdin.read()
    has_ended.set()


if __name__ == "__main__":
    threading.Thread(target=watch).start()
    sys.stdout.write(json.dumps(sorted(CALLS)) + "\n")
    sys.stdout.flush()
    work()
    sys.stdout.write("done\n")
