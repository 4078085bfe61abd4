"""Inside the program, run by path beside hook.py: which threads of the process a segment of XLA's
profiler is about. Standard library only.

XLA numbers a thread by libstdc++'s hash of its pthread_t, which can be undone: it mixes 8 bytes by
multiplications and shifts. There the C library has the number of the thread, at a place that our
own threads tell. What is read must be a thread of this process that is called as in the segment,
or has no name of its own.
"""

import os
import threading

is_of_handler = faults[1]  # noqa: F821 - the hook puts it here
MASK = (1 << 64) - 1
MULTIPLIER = 0xC6A4A7935BD1E995
BACK = pow(MULTIPLIER, -1, 1 << 64)
SEED = 0xC70F6907 ^ 8 * MULTIPLIER & MASK
SHIFT = 47
MOST_OFFSET = 4096  # of the number in what the C library knows of a thread
PLANE, LINES, LINE_ID, LINE_NAME = 1, 3, 1, 2  # numbers of fields
MOST_NAME = 15  # letters of the name of a thread


def address_of(number):
    """The pthread_t that has this hash."""
    mixed = (number ^ number >> SHIFT) * BACK & MASK
    mixed = (mixed ^ mixed >> SHIFT) * BACK & MASK
    key = (mixed ^ SEED) * BACK & MASK
    return (key ^ key >> SHIFT) * BACK & MASK


def varint(data, at):
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data, at, end):
    """The numbers of the fields of a message, and their values, or where their bytes are."""
    while at < end:
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            length, at = varint(data, at)
            yield key >> 3, (at, at + length)
            at += length
        else:
            return


def lines(content):
    """(number, name) of the lines of all planes. They come before the events of a line."""
    for what, plane in fields(content, 0, len(content)):
        if what != PLANE:
            continue
        for kind, line in fields(content, *plane):
            if kind != LINES:
                continue
            number, name = 0, ""
            for key, value in fields(content, *line):
                if key == LINE_ID:
                    number = value
                elif key == LINE_NAME:
                    name = content[slice(*value)].decode("utf-8", "replace")
                else:
                    break
            yield number, name


def offset_of_number(memory):
    """Where the C library has the number of a thread, by the one that calls; -1: not known."""
    start = threading.get_ident()
    mine = threading.get_native_id().to_bytes(4, "little")
    known = os.pread(memory, MOST_OFFSET, start)
    at = known.find(mine)
    while at % 4 and at >= 0:
        at = known.find(mine, at + 1)
    return at


def name_of(tid):
    """The name of a thread of this process; empty: there is none of this number."""
    try:
        with open(f"/proc/self/task/{tid}/comm") as file:
            return file.read().strip()
    except OSError as error:
        if is_of_handler(error):
            raise
        return ""


def numbers_of_threads(content):
    """The numbers of the system by those of the segment, as text, of the threads that live."""
    found = {}
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        offset = offset_of_number(memory)
        usual = name_of(os.getpid())
        for number, name in lines(content) if offset >= 0 else ():
            pool, _, of_pool = name.rpartition("/")
            if of_pool.lstrip("-").isdecimal():
                name = pool
            try:
                read = os.pread(memory, 4, address_of(number) + offset)
            except (OSError, OverflowError) as error:
                if is_of_handler(error):
                    raise
                continue  # it has ended
            tid = int.from_bytes(read, "little")
            if tid and name_of(tid) in (name[:MOST_NAME], usual):
                found[str(number)] = tid
    finally:
        os.close(memory)
    return found
