"""A reader of pickles that knows plain data alone: None, truth values, numbers, texts, bytes,
lists, tuples and dictionaries with texts as keys. Used by `torch_snapshot`.

A pickle is a program: it may name any function of any library and have it called. So `pickle` is
never used here, and whatever would make anything else than plain data (GLOBAL, REDUCE, BUILD, ...)
ends the reading. Nothing is recursive, and what a file may keep in memory is bounded: what the
caller has understood of a list it takes out of it (`Taker`), and so files of any size are read.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from layerscope.model.errors import ReadError

# Gets the list, what is appended to it, and returns what of this is to be kept in the list.
Taker = Callable[[list[Any], list[Any]], list[Any]]
# Gets a list of records, the data, the place in them behind a record, and the memo; reads on by
# itself and returns the place that it has come to.
Quick = Callable[[list[Any], bytes, int, list[Any]], int]
# In the place of what was taken out.
TAKEN = object()
# More than the longest of the instructions that are read without looking whether the file goes on.
_MARGIN_BYTES = 512
_MOST_TEXT_BYTES = 1 << 24
# Of values that wait to be put into something, and of values that are kept.
_MOST_WAITING, _MOST_HELD = 1 << 22, 1 << 24
# Entries of the memo, of which what was taken out leaves one that is empty: several for each event
# of the longest history that is read.
_MOST_MEMORIZED = 400_000_000
# What a long text counts as: a value for so many bytes.
_TEXT_UNIT = 64
_MOST_PROTOCOL = 5
# A memo may be numbered in any way, but not with such gaps.
_MOST_GAP = 1 << 16
# So often at most `Quick` is not asked again after it could not read on.
_MOST_PAUSE = 1 << 10
# Python appends a thousand items at once: where more wait, it did not write the file.
_MOST_AT_ONCE = 1 << 11
_GETS = re.compile(rb"(?:h.)+|(?:j....)+", re.DOTALL)
_LONG_GET = np.dtype([("code", "u1"), ("place", "<u4")])
_GET = ord("h")
_GET_CODES = (_GET, ord("j"))
# What is refused, by its code.
_FORBIDDEN = {
    ord("c"): "GLOBAL",
    ord("i"): "INST",
    ord("o"): "OBJ",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    ord("2"): "DUP",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    0x96: "BYTEARRAY8",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
_TRUTH = {b"00": False, b"01": True}


class PlainPickle:
    """Reads one pickle. `pieces`: the file; `name`: what it is called in messages. `record_key`:
    what only dictionaries have that `quick` can read.
    """

    def __init__(
        self,
        pieces: Iterator[bytes],
        name: str,
        taker: Taker,
        quick: Quick | None = None,
        record_key: str = "",
    ) -> None:
        self._pieces = pieces
        self._name = name
        self._taker = taker
        self._quick = quick
        self._record_key = record_key
        self._pause = self._rest = 0
        self._data = b""
        self._at = self._limit = self._before = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._place_of: dict[int, int] = {}  # of lists and dictionaries in the memo, by identity
        self._held = 0
        self._instructions = self._table()

    def read(self) -> Any:
        """What the pickle holds. ReadError when it is damaged, cut, or holds anything else than
        plain data.
        """
        try:
            return self._run()
        except (IndexError, struct.error, ValueError, TypeError, OverflowError) as error:
            raise self._damaged() from error

    def forget(self) -> None:
        """Let go of what was read."""
        for held in (self._memo, self._stack, self._place_of):
            held.clear()
        self._data = b""

    def text(self, octets: bytes) -> str:
        """A text that `quick` puts into the memo."""
        self._held += 1 + len(octets) // _TEXT_UNIT
        return _text(octets)

    def take_out(self, values: list[Any]) -> None:
        """Forget these lists and dictionaries, which nothing refers to any more."""
        memo = self._memo
        place_of = self._place_of
        for value in values:
            place = place_of.pop(id(value), None)
            if place is not None:
                memo[place] = TAKEN
                self._held -= 1
            self._held -= len(value)

    def put_in_place(self, of: list[Any], value: Any) -> None:
        """From now on whoever refers to the list `of` gets `value`."""
        place = self._place_of.pop(id(of), None)
        if place is not None:
            self._memo[place] = value
            self._held -= 1

    def _run(self) -> Any:
        """The way of most instructions; the others have a method each."""
        stack, memo, marks, instructions = self._stack, self._memo, self._marks, self._instructions
        push, mark, get = stack.append, marks.append, memo.__getitem__
        data, at, limit = self._data, self._at, self._limit
        from_bytes, record_key = int.from_bytes, self._record_key
        while True:
            if at >= limit:
                self._at = at
                self._refill()
                data, at, limit = self._data, self._at, self._limit
            code = data[at]
            if code == _GET and data[at + 2] != _GET:
                push(get(data[at + 1]))
                at += 2
            elif code in _GET_CODES:
                at = self._get_many(data, at)
            elif code == 0x4B:  # BININT1
                push(data[at + 1])
                at += 2
            elif code == 0x8A:  # LONG1
                stop = at + 2 + data[at + 1]
                push(from_bytes(data[at + 2 : stop], "little", signed=True))
                at = stop
            elif code == 0x4A:  # BININT
                push(from_bytes(data[at + 1 : at + 5], "little", signed=True))
                at += 5
            elif code == 0x4D:  # BININT2
                push(data[at + 1] | data[at + 2] << 8)
                at += 3
            elif code == 0x28:  # MARK
                mark(len(stack))
                at += 1
            elif code == 0x94:  # MEMOIZE
                self._put(len(memo))
                at += 1
            elif code == 0x7D:  # EMPTY_DICT
                push({})
                at += 1
            elif code == 0x5D:  # EMPTY_LIST
                push([])
                at += 1
            elif code == 0x75:  # SETITEMS
                into = self._set_items(self._since_mark())
                at += 1
                if record_key in into:
                    at = self._read_on(data, at)
            elif code == 0x65:  # APPENDS
                self._append(self._since_mark())
                at += 1
            elif code == 0x2E:  # STOP
                return stack[-1]
            else:
                self._at = at + 1
                instruction = instructions.get(code)
                if instruction is None:
                    raise self._refused(code)
                instruction()
                data, at, limit = self._data, self._at, self._limit

    def _get_many(self, data: bytes, at: int) -> int:
        """Push what several instructions in a row name; returns where they end."""
        found = _GETS.match(data, at)
        if found is None:
            raise IndexError
        stop = found.end()
        if data[at] == _GET:
            places = list(data[at + 1 : stop : 2])
        else:
            places = np.frombuffer(data[at:stop], _LONG_GET)["place"].tolist()
        self._stack += map(self._memo.__getitem__, places)
        return stop

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _read_on(self, data: bytes, at: int) -> int:
        """Have the records read that follow in the list; returns where they end."""
        start = self._marks[-1] if self._marks else 0
        waiting = len(self._stack) - start
        into = self._stack[start - 1] if 0 < start < len(self._stack) else None
        is_resting = self._rest or waiting > _MOST_AT_ONCE
        if self._quick is None or is_resting or type(into) is not list:
            self._rest = max(self._rest - 1, 0)
            return at
        items = self._stack[start:]
        if set(map(type, items)) != {dict}:  # a list of one record has no mark of its own
            self._wait()  # the same items are not looked at again for each that follows
            return at
        # The mark stays where it is, for those that follow.
        del self._stack[start:]
        self._append(items)
        reached = self._quick(into, data, at, self._memo)
        if reached == at:
            self._wait()
        else:
            self._pause = 0
        return reached

    def _wait(self) -> None:
        """Each time `quick` is of no use it is not asked for twice as long."""
        self._pause = min(2 * self._pause + 1, _MOST_PAUSE)
        self._rest = self._pause

    def _set_items(self, items: list[Any]) -> dict[Any, Any]:
        """Put keys and values into the dictionary below them."""
        into, keys = self._stack[-1], items[::2]
        # A text as key has no items whose hash would be asked for, in each other without end.
        is_text = not keys or set(map(type, keys)) == {str}
        if type(into) is not dict or not is_text or len(items) & 1:
            raise ValueError
        before = len(into)
        into.update(zip(keys, items[1::2], strict=True))
        self._held += len(into) - before
        return into

    def _append(self, items: list[Any]) -> None:
        into = self._stack[-1]
        if type(into) is not list:
            raise ValueError
        if items:
            kept = self._taker(into, items)
            self._held += len(kept)
            into += kept

    def _put(self, place: int) -> None:
        """The memo gets what is on top."""
        memo, top = self._memo, self._stack[-1]
        if place == len(memo):
            memo.append(top)
        elif place < len(memo):
            memo[place] = top
            self._quick = None  # it knows the memo as it was
        else:
            if place - len(memo) > _MOST_GAP:
                raise ValueError
            memo += [TAKEN] * (place - len(memo))
            memo.append(top)
        if type(top) is dict or type(top) is list:
            self._place_of[id(top)] = place
        self._held += 1

    # -- the file ----------------------------------------------------------------------------------

    def _refill(self) -> None:
        """More of the file; at its end nothing."""
        waiting = len(self._stack) + len(self._marks)
        is_full = self._held > _MOST_HELD or len(self._memo) > _MOST_MEMORIZED
        if waiting > _MOST_WAITING or is_full:
            raise ReadError(
                f"{self._name} is refused: it has far more in it than a snapshot of memory, "
                "whatever it is"
            )
        self._before += self._at
        fresh = [self._data[self._at :]]
        size, has_more = len(fresh[0]), True
        while has_more and (len(fresh) == 1 or size <= _MARGIN_BYTES):
            piece = next(self._pieces, b"")
            has_more = bool(piece)
            fresh.append(piece)
            size += len(piece)
        self._data = b"".join(fresh)
        self._at = 0
        self._limit = size - (_MARGIN_BYTES if has_more else 0)

    def _bytes(self, size: int) -> bytes:
        """The next bytes of the file."""
        if size > _MOST_TEXT_BYTES:
            raise ValueError
        if size > _TEXT_UNIT:
            self._held += size // _TEXT_UNIT
        while len(self._data) - self._at < size:
            have = len(self._data) - self._at
            self._refill()
            if len(self._data) == have:
                raise IndexError
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _line(self) -> bytes:
        """What stands before the next end of a line."""
        end = self._data.find(b"\n", self._at)
        while end < 0:
            have = len(self._data) - self._at
            self._refill()
            if len(self._data) == have or have > _MOST_TEXT_BYTES:
                raise IndexError
            end = self._data.find(b"\n", self._at)
        line = self._bytes(end + 1 - self._at)
        return line[:-1].removesuffix(b"\r")

    def _damaged(self) -> ReadError:
        at = self._before + self._at
        return ReadError(f"{self._name} is damaged or cut near byte {at:,}: copy it again")

    def _refused(self, code: int) -> ReadError:
        at = self._before + self._at - 1
        what = _FORBIDDEN.get(code)
        if what is None:
            return self._damaged()
        return ReadError(
            f"{self._name} is refused: it is a pickle with more than plain data ({what} at byte "
            f"{at:,}), which could run anything, and no snapshot of memory has that: do not "
            "load it by Python either"
        )

    # -- the other instructions --------------------------------------------------------------------

    def _table(self) -> dict[int, Callable[[], object]]:
        push = self._stack.append
        return {
            0x80: self._protocol,
            0x95: lambda: self._bytes(8),  # FRAME
            ord("N"): lambda: push(None),
            0x88: lambda: push(True),
            0x89: lambda: push(False),
            ord("I"): lambda: push(self._decimal()),
            ord("L"): lambda: push(int(self._line().rstrip(b"L"))),
            ord("F"): lambda: push(float(self._line())),
            ord("G"): lambda: push(*struct.unpack(">d", self._bytes(8))),
            0x8B: lambda: push(self._long()),
            ord("S"): lambda: push(self._quoted()),
            ord("T"): lambda: push(_text(self._bytes(self._number(4)))),
            ord("U"): lambda: push(_text(self._bytes(self._number(1)))),
            ord("V"): lambda: push(_valid(self._line().decode("raw-unicode-escape", "replace"))),
            ord("X"): lambda: push(_text(self._bytes(self._number(4)))),
            0x8C: lambda: push(_text(self._bytes(self._number(1)))),
            0x8D: lambda: push(_text(self._bytes(self._number(8)))),
            ord("B"): lambda: push(self._bytes(self._number(4))),
            ord("C"): lambda: push(self._bytes(self._number(1))),
            0x8E: lambda: push(self._bytes(self._number(8))),
            ord("a"): lambda: self._append([self._stack.pop()]),
            ord("s"): self._set_item,
            ord("l"): self._list,
            ord("d"): self._dict,
            ord("t"): lambda: self._tuple(self._since_mark()),
            ord(")"): lambda: push(()),
            0x85: lambda: self._tuple(self._last(1)),
            0x86: lambda: self._tuple(self._last(2)),
            0x87: lambda: self._tuple(self._last(3)),
            ord("0"): self._stack.pop,
            ord("1"): self._since_mark,
            ord("g"): lambda: push(self._memo[_place(int(self._line()))]),
            ord("p"): lambda: self._put(_place(int(self._line()))),
            ord("q"): lambda: self._put(self._number(1)),
            ord("r"): lambda: self._put(self._number(4)),
        }

    def _protocol(self) -> None:
        if self._number(1) > _MOST_PROTOCOL:
            raise ValueError

    def _decimal(self) -> int:
        text = self._line()
        return _TRUTH[text] if text in _TRUTH else int(text)

    def _long(self) -> int:
        return int.from_bytes(self._bytes(self._number(4)), "little", signed=True)

    def _quoted(self) -> str:
        """A text as Python 2 wrote it."""
        line = self._line()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise ValueError
        decoded, _ = codecs.escape_decode(line[1:-1])
        assert isinstance(decoded, bytes)
        return _text(decoded)

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _tuple(self, items: list[Any]) -> None:
        self._held += len(items) + 1
        self._stack.append(tuple(items))

    def _list(self) -> None:
        items = self._since_mark()
        self._stack.append([])
        self._append(items)

    def _dict(self) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set_items(items)

    def _set_item(self) -> None:
        self._set_items(self._last(2))


def _place(number: int) -> int:
    if number < 0:
        raise ValueError
    return number


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "replace")


def _valid(text: str) -> str:
    """The text without halves of characters."""
    return text.encode("utf-8", "replace").decode("utf-8")
