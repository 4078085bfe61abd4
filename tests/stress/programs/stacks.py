"""Stacks of all kinds: very deep ones, those of greenlets, of subinterpreters and of generators."""

import sys
import threading

from given import MODE, Busy, burn, chosen, rounds


def depth_of(number):
    return 1 + depth_of(number - 1) if number else burn(0.02) or 0


def deep():
    sys.setrecursionlimit(20000)
    for _ in range(rounds(10)):
        print(depth_of(chosen.randrange(9000, 10000)))


def deep_in_c():
    threading.stack_size(64 << 20)
    sys.setrecursionlimit(20000)

    def nested(number):
        return max([number], key=lambda one: nested(one - 1) if one else burn(0.02) or 0) or 0

    def run():
        for _ in range(rounds(10)):
            found.append(nested(chosen.randrange(1500, 2000)))

    found = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    print(found)


def endless():
    def forever(number):
        burn(0.0001)
        return forever(number + 1)

    for _ in range(rounds(3)):
        try:
            forever(0)
        except RecursionError as error:
            print(error)


def greenlets():
    import greenlet

    def other(number):
        total = 0
        while True:
            burn(0.0005)
            total += number
            number = main.switch(total + depth_of_switches(number % 7))

    def depth_of_switches(number):
        return number and greenlet.greenlet(depth_of_switches).switch(number - 1)

    main = greenlet.getcurrent()
    many = [greenlet.greenlet(other) for _ in range(50)]
    print(sum(chosen.choice(many).switch(number) for number in range(rounds(200))))


def subinterpreters():
    import _xxsubinterpreters as interpreters

    text = "def f(n): return n and f(n - 1) + sum(sorted(range(100)))\nfor _ in range(300): f(20)"

    def run(into):
        for _ in range(rounds(3)):
            one = interpreters.create()
            interpreters.run_string(one, text)
            interpreters.destroy(one)
            into.append(1)

    found = []
    threads = [threading.Thread(target=run, args=(found,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(found), [int(one) for one in interpreters.list_all()])


def generators():
    def counted(number):
        if number:
            yield from counted(number - 1)
        burn(0.0001)
        yield number

    for _ in range(rounds(5)):
        print(sum(counted(chosen.randrange(100, 200))))


MODES = {function.__name__: function for function in (deep, deep_in_c, endless, greenlets, subinterpreters, generators)}
busy = Busy(0 if MODE == "subinterpreters" else 1)
MODES[MODE]()
busy.end()
