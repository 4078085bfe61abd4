"""What stands on paper: the texts, colours and pictures of a PDF as Chromium writes it."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

_OBJECT = re.compile(rb"(\d+) 0 obj\s(.*?)endobj", re.DOTALL)
_STREAM = re.compile(rb"(<<.*?/Length (\d+).*?>>)\s*stream\r?\n", re.DOTALL)
_FONT = re.compile(rb"/(F\d+) (\d+) 0 R")
_UNICODE = re.compile(rb"/ToUnicode (\d+) 0 R")
_CHARACTERS = re.compile(rb"beginbfchar(.*?)endbfchar", re.DOTALL)
_RANGES = re.compile(rb"beginbfrange(.*?)endbfrange", re.DOTALL)
_WORD = re.compile(rb"<([0-9A-Fa-f]+)>")
# What chooses a font, shows a text, or chooses the colour of what is filled.
_STEP = re.compile(
    rb"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)> Tj|\[(.*?)\] ?TJ|([\d.]+) ([\d.]+) ([\d.]+) rg", re.DOTALL
)

Colour = tuple[int, int, int]


@dataclass(slots=True)
class OnPaper:
    """The letters of all pages without blanks, the colours they use, and the bytes of pictures."""

    letters: str = ""
    colours: set[Colour] = field(default_factory=set)
    text_colours: set[Colour] = field(default_factory=set)
    pictures: list[bytes] = field(default_factory=list)

    def has(self, words: str) -> bool:
        """Whether `words` stand there, wherever lines end."""
        return "".join(words.split()) in self.letters


def read(pdf: bytes) -> OnPaper:
    """What is in a PDF that Chromium has written."""
    objects = {int(number): body for number, body in _OBJECT.findall(pdf)}
    fonts = _fonts(objects)
    found = OnPaper()
    for number in sorted(objects):
        about, data = _stream(objects[number])
        if b"/Subtype /Image" in about:
            found.pictures.append(data)
        elif b"/Length1" not in about:  # which the files of fonts have
            _read_content(data, fonts, found)
    return found


def _stream(body: bytes) -> tuple[bytes, bytes]:
    """What is said of the stream of an object, and the stream, which may be empty."""
    stream = _STREAM.match(body)
    if stream is None:
        return b"", b""
    data = body[stream.end() : stream.end() + int(stream[2])]
    return stream[1], zlib.decompress(data) if b"/FlateDecode" in stream[1] else data


def _fonts(objects: dict[int, bytes]) -> dict[bytes, dict[int, str]]:
    """What the glyphs of each font stand for, by the name of the font."""
    found = {}
    for body in objects.values():
        for name, number in _FONT.findall(body):
            table = _UNICODE.search(objects.get(int(number), b""))
            if table:
                found[name] = _letters(_stream(objects[int(table[1])])[1])
    return found


def _letters(table: bytes) -> dict[int, str]:
    found = {}
    for part in _CHARACTERS.findall(table):
        words = _WORD.findall(part)
        for glyph, text in zip(words[::2], words[1::2], strict=True):
            found[int(glyph, 16)] = bytes.fromhex(text.decode()).decode("utf-16-be")
    for part in _RANGES.findall(table):
        words = _WORD.findall(part)
        for first, last, text in zip(words[::3], words[1::3], words[2::3], strict=True):
            for place, glyph in enumerate(range(int(first, 16), int(last, 16) + 1)):
                found[glyph] = chr(int(text, 16) + place)
    return found


def _read_content(content: bytes, fonts: dict[bytes, dict[int, str]], found: OnPaper) -> None:
    letters: dict[int, str] = {}
    colour: Colour = (0, 0, 0)
    for font, one, several, *rgb in _STEP.findall(content):
        if font:
            letters = fonts.get(font, {})
        elif one or several:
            glyphs = b"".join([one, *_WORD.findall(several)])
            codes = [int(glyphs[at : at + 4], 16) for at in range(0, len(glyphs), 4)]
            text = "".join(letters.get(code, "") for code in codes)
            found.letters += "".join(text.split())
            found.text_colours.add(colour)
        else:
            red, green, blue = (round(float(part) * 255) for part in rgb)
            colour = red, green, blue
            found.colours.add(colour)
