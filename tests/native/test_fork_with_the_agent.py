"""A forked child is a process of its own: nothing of its parent's recording is touched or told
twice.
"""

from __future__ import annotations

from tests.native.driven import Drive


def test_a_child_has_its_own_page_rings_names_and_spans(drive: Drive) -> None:
    driven = drive(
        """
        start()
        op("parent before")
        outer = begin("open across fork", RANGE)
        child = os.fork()
        if child == 0:
            op("child first")
            inner = begin("child outer", RANGE)
            op("child inner")
            end(inner)
            end(outer)  # the copy of the parent's: not the child's to tell
            op("child last")
            os._exit(0)
        op("parent during")
        os.waitpid(child, 0)
        end(outer)
        op("parent after")
        print(child)
        """
    )
    child = int(driven.stdout)

    assert (driven.status, driven.stderr) == (0, "")
    assert driven.tree() == [
        ("parent before", 0, None), ("open across fork", 0, None), ("parent during", 1, "open across fork"),
        ("parent after", 0, None),
    ]  # fmt: skip
    assert driven.tree(child) == [
        ("child first", 0, None), ("child outer", 0, None), ("child inner", 1, "child outer"), ("child last", 0, None)
    ]  # fmt: skip
    ppid = driven.rows(f"SELECT ppid FROM processes WHERE pid = {child}")
    assert ppid == [{"ppid": driven.pid}]
    mine, theirs = sorted(driven.door.handed.values(), key=lambda handed: handed.pid != driven.pid)
    assert [
        len(part)
        for handed in (mine, theirs)
        for part in (handed.pages, handed.rings, handed.names)
    ] == [1] * 6
    assert not driven.losses()
    assert not driven.losses(child)


def test_a_child_that_dies_takes_nothing_along(drive: Drive) -> None:
    driven = drive(
        """
        start()
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                for i in range(number * 10 + 1):
                    op(f"child {number}")
                begin("open at death", RANGE)
                os.kill(os.getpid(), 9)
            children.append(child)
            op("parent")
        for child in children:
            os.waitpid(child, 0)
        print(*children)
        """
    )
    children = [int(word) for word in driven.stdout.split()]

    assert (driven.status, driven.stderr) == (0, "")
    assert driven.tree() == [("parent", 0, None)] * 4
    for number, child in enumerate(children):
        spans = driven.spans(child)
        assert [span["name"] for span in spans] == [f"child {number}"] * (number * 10 + 1) + [
            "open at death"
        ]
        assert [span["unfinished"] for span in spans] == [False] * (number * 10 + 1) + [True]


def test_generations_of_children_do_not_mix(drive: Drive) -> None:
    driven = drive(
        """
        start()
        outer = begin("level 0", RANGE)
        for level in range(1, 5):
            child = os.fork()
            if child:
                break
            end(outer)
            outer = begin(f"level {level}", RANGE)
            op(f"in level {level}")
        if child:
            os.waitpid(child, 0)
        end(outer)
        os._exit(0)
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    rows = driven.rows("SELECT name, count(*) AS n FROM spans GROUP BY name ORDER BY name")
    expected = {f"level {level}": 1 for level in range(5)} | {
        f"in level {level}": 1 for level in range(1, 5)
    }
    assert {row["name"]: row["n"] for row in rows} == expected
    assert driven.rows("SELECT count(*) AS n FROM processes") == [{"n": 5}]


def test_forks_while_other_threads_record_leave_both_whole(drive: Drive) -> None:
    driven = drive(
        """
        start()
        stop = []
        counts = [0, 0]
        def record(number):
            while not stop:
                run([f"thread {number}"], 100)
                op(f"fresh name {number} {counts[number]}")
                counts[number] += 1
                time.sleep(0.0002)  # or a busy machine leaves the thread that forks no time
        threads = [threading.Thread(target=record, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        children = []
        for number in range(20):
            time.sleep(0.005)
            child = os.fork()
            if child == 0:
                for i in range(50):
                    op(f"child's name {i}")
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        stop.append(1)
        for thread in threads:
            thread.join()
        print(*children, *counts)
        """
    )
    *children, first, second = [int(word) for word in driven.stdout.split()]

    assert (driven.status, driven.stderr) == (0, "")
    for child in children:
        assert driven.tree(child) == [(f"child's name {i}", 0, None) for i in range(50)]
    assert len(driven.spans()) + sum(driven.losses().values()) == 101 * (first + second)


def test_a_child_that_records_nothing_says_nothing(drive: Drive) -> None:
    driven = drive(
        """
        start()
        op("parent")
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert len(driven.door.handed) == 1
    assert driven.tree() == [("parent", 0, None)]


def test_a_child_is_not_held_up_by_what_its_parent_asked_for(drive: Drive) -> None:
    driven = drive(
        """
        start()
        libc, held = ctypes.CDLL(None), []
        reads, writes = os.pipe()
        answer = ctypes.create_string_buffer(1)
        def hold():
            agent.ls_python_hold.argtypes = [ctypes.c_int64]
            held.append(agent.ls_python_hold(2_000_000_000))
            agent.ls_python_let_go()
        def fork():
            holder = threading.Thread(target=hold)
            holder.start()
            time.sleep(0.2)
            child = os.fork()
            if not child:
                time.sleep(0.01)  # Python looks at what it was asked for when it goes on
                os.write(writes, bytes([len([*range(1000)]) % 256]))
                os._exit(0)
            os.waitpid(child, 0)
            holder.join()
        forker = threading.Thread(target=fork)
        forker.start()
        libc.read(reads, answer, 1)  # the main thread comes between two instructions when a child has answered
        forker.join()
        print(held)
        """
    )

    assert (driven.status, driven.stderr, driven.stdout) == (0, "", "[1]\n")
