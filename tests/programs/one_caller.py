"""A program in which every function has one caller, however it is called: so the innermost function
tells the whole stack. Plain calls, through C, generators, coroutines, classes, exceptions, `with`,
comprehensions, recursion by name, threads. Prints the caller of each function, then works until its
standard input ends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator

# A function of its own before 3.12.
COMPREHENSION = "in_comprehension" + ".<locals>.<listcomp>" * (sys.version_info < (3, 12))
CALLERS = {
    "work": "<module>",
    "in_generator": "work",
    "outer_generator": "in_generator",
    "inner_generator": "outer_generator",
    "of_generator": "inner_generator",
    "in_comprehension": "work",
    "of_comprehension": COMPREHENSION,
    "in_expression": "work",
    "in_expression.<locals>.<genexpr>": "in_expression",
    "of_expression": "in_expression.<locals>.<genexpr>",
    "in_class": "work",
    "Made.__init__": "in_class",
    "Made.prepare": "Made.__init__",
    "Made.__getattr__": "in_class",
    "of_attribute": "Made.__getattr__",
    "Made.__add__": "in_class",
    "of_sum": "Made.__add__",
    "in_exception": "work",
    "raising": "in_exception",
    "raising_below": "raising",
    "handling": "in_exception",
    "in_with": "work",
    "Managed.__enter__": "in_with",
    "entering": "Managed.__enter__",
    "Managed.__exit__": "in_with",
    "leaving": "Managed.__exit__",
    "of_with": "in_with",
    "in_c": "work",
    "by_key": "in_c",
    "of_key": "by_key",
    "by_map": "in_c",
    "of_map": "by_map",
    "by_reduce": "in_c",
    "in_recursion": "work",
    "in_thread": "ThreadLike.run",
    "of_thread": "in_thread",
}
# What they compute with; a call of it would be one of many callers.
ROUNDS = 60
has_ended = threading.Event()


def of_generator() -> int:
    x = 0
    for i in range(ROUNDS):
        x += i * i
    return x


def inner_generator() -> Iterator[int]:
    for _ in range(4):
        yield of_generator()


def outer_generator() -> Iterator[int]:
    yield from inner_generator()


def in_generator() -> int:
    x = 0
    for i in outer_generator():
        x += i
    return x


def of_comprehension(n: int) -> int:
    x = n
    for i in range(ROUNDS):
        x ^= i
    return x


def in_comprehension() -> int:
    return len([of_comprehension(i) for i in range(6)])


def of_expression(n: int) -> int:
    x = n
    for i in range(ROUNDS):
        x += i % 7
    return x


def in_expression() -> int:
    return sum(of_expression(i) for i in range(6))


class Made:
    """Its methods are called by operators, by a name that is not there, and as it is made."""

    def __init__(self) -> None:
        self.x = self.prepare()

    def prepare(self) -> int:
        x = 0
        for i in range(ROUNDS):
            x += i * 3
        return x

    def __getattr__(self, name: str) -> int:
        return of_attribute(name)

    def __add__(self, other: int) -> int:
        return of_sum(self.x, other)


def of_attribute(name: str) -> int:
    x = len(name)
    for i in range(ROUNDS):
        x += i
    return x


def of_sum(one: int, other: int) -> int:
    for i in range(ROUNDS):
        one += other + i
    return one


def in_class() -> int:
    made = Made()
    return (made + 1) + made.missing


def raising_below(n: int) -> int:
    x = 0
    for i in range(ROUNDS):
        x += i * n
    raise ValueError(x)


def raising(n: int) -> int:
    return raising_below(n) + 1


def handling(error: ValueError) -> int:
    x = 0
    for i in range(ROUNDS):
        x += i
    return x + len(error.args)


def in_exception() -> int:
    x = 0
    for i in range(4):
        try:
            x += raising(i)
        except ValueError as error:
            x += handling(error)
    return x


def entering() -> int:
    x = 0
    for i in range(ROUNDS):
        x += i
    return x


def leaving() -> int:
    x = 0
    for i in range(ROUNDS):
        x -= i
    return x


class Managed:
    """Its methods are called by `with`."""

    def __enter__(self) -> int:
        return entering()

    def __exit__(self, *_: object) -> None:
        leaving()


def of_with(n: int) -> int:
    for i in range(ROUNDS):
        n += i
    return n


def in_with() -> int:
    with Managed() as n:
        return of_with(n)


def of_key(n: int) -> int:
    x = n
    for i in range(ROUNDS // 4):
        x += i
    return -x


def by_key(n: int) -> int:
    return of_key(n)


def of_map(n: int) -> int:
    x = n
    for i in range(ROUNDS // 4):
        x *= 1 + i % 2
    return x


def by_map(n: int) -> int:
    return of_map(n)


def by_reduce(one: int, other: int) -> int:
    for i in range(ROUNDS // 4):
        one += other * i
    return one


def in_c() -> int:
    ordered = sorted(range(10), key=by_key)
    return functools.reduce(by_reduce, map(by_map, ordered))


def made_recursion(depth: int) -> dict[str, Callable[[int], int]]:
    """Functions that call each other one by one, each with a name of its own."""
    space: dict[str, Callable[[int], int]] = {}
    for n in range(depth):
        below = f"level_{n + 1}(x + 1)" if n + 1 < depth else "x"
        text = f"def level_{n}(x):\n for i in range(3): x += i\n return {below} + 1\n"
        exec(compile(text, "<recursion>", "exec"), space)
        CALLERS[f"level_{n}"] = f"level_{n - 1}" if n else "in_recursion"
    return space


LEVELS = made_recursion(60)
first_level = LEVELS["level_0"]


def in_recursion() -> int:
    return first_level(1)


def of_coroutine() -> int:
    x = 0
    for i in range(ROUNDS):
        x += i
    return x


async def leaf() -> int:
    x = of_coroutine()
    await asyncio.sleep(0)
    return x


async def middle() -> int:
    return await leaf()


async def numbers() -> AsyncIterator[int]:
    for _ in range(4):
        yield of_numbers()


def of_numbers() -> int:
    x = 0
    for i in range(ROUNDS):
        x += i
    return x


async def asking() -> int:
    x = 0
    async for n in numbers():
        x += n
    return x


async def root() -> int:
    x = 0
    for _ in range(4):
        x += await middle()
        x += await asking()
    return x


COROUTINES = {
    "of_coroutine": "leaf",
    "leaf": "middle",
    "middle": "root",
    "asking": "root",
    "numbers": "asking",
    "of_numbers": "numbers",
}


def of_thread(n: int) -> int:
    x = n
    for i in range(ROUNDS):
        x += i
    return x


def in_thread() -> None:
    while not has_ended.is_set():
        of_thread(1)


class ThreadLike(threading.Thread):
    """Runs a function of its own."""

    def run(self) -> None:
        in_thread()


def work() -> None:
    in_generator()
    in_comprehension()
    in_expression()
    in_class()
    in_exception()
    in_with()
    in_c()
    in_recursion()


def watch() -> None:
    sys.stdin.read()
    has_ended.set()


if __name__ == "__main__":
    threading.Thread(target=watch).start()
    ThreadLike().start()
    print(json.dumps(CALLERS | COROUTINES), flush=True)
    turn = 0
    while not has_ended.is_set():
        if turn % 8 == 0:
            asyncio.run(root())
        work()
        turn += 1
    print("done")
