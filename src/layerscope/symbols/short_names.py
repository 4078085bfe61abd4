"""Names short enough for a flame graph.

One rule for all sources: a function is called by its name without template arguments, parameters
and return type (the column `name` of `frames`), and the whole name is its `signature`. So `inner`
and `inner(double)`, as other tools write it, are one name.
"""

from __future__ import annotations

import re

_THUNK = re.compile(
    r"^((?:non-virtual |virtual |covariant return )?thunk to |(?:guard "
    r"variable|vtable|VTT|typeinfo) for )"
)
# An operator whose signs are no brackets; what has no name, as LLVM writes it; an arrow; a bracket.
_SIGNS = re.compile(
    r"\boperator *(?:\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[<>]=?|[-+*/%^&|=!~,]{1,2}=?)|"
    r"'(?P<unnamed>lambda|unnamed|block-literal)\d*'|->|[<([>)\]{]"
)
_CLONE = re.compile(r" (?:\(\.[\w.]+\)|\[clone [^\]]*\])")
_ABI_TAG = re.compile(r"\[abi:[^\]]*\]")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_CONVERSION = re.compile(r"(?<!\w)operator (?!co_await)")
_QUALIFIERS = re.compile(r"(?: (?:const|volatile|noexcept)| ?&&?)+(?=::|$)")
_COLONS = re.compile(r"(?:::){2,}|::$")
# What other tools print of a function: its parameters behind the name without a space, and what may
# follow them.
_WITH_PARAMETERS = re.compile(
    r".*[^\s(]\(.*\)(?: const| volatile| noexcept| ?&&?)*(?: \[clone [^\]]*\]| \(\.[\w.]+\))*$"
)
_SCOPE = re.compile(r"(?<=[\w)}>])::(?=[\w~<({$])|\w<.*>$")
_OPENS, _CLOSES = "<([", ">)]"


def short(name: str) -> str:
    """A demangled name without template arguments, parameters, return type and unnamed namespaces.

    `void at::native::(anonymous
    namespace)::foo<float>(at::Tensor&)::{lambda(int)#1}::operator()(int) const` becomes
    `at::native::foo::{lambda}::operator()`. What is no such name stays as it is.
    """
    if name.startswith("["):  # a place in a file without names
        return name
    text = _RUST_HASH.sub("", _ABI_TAG.sub("", _CLONE.sub("", name)))
    text = (
        text.replace("(anonymous namespace)::", "")
        .replace("{anonymous}::", "")
        .replace("decltype(auto) ", "")
    )
    thunk = _THUNK.match(text)
    prefix = thunk[1] if thunk else ""
    text = text[len(prefix) :]
    if text.startswith("<"):
        return _of_implementation(text) or name
    plain = _without_brackets(text)
    if plain is None:  # LLVM writes operator< with template arguments as operator<<int>
        plain = _without_brackets(text.replace("operator<<", "operator< <"))
    if plain is None:
        return name
    plain = _QUALIFIERS.sub("", _COLONS.sub(_one_pair, plain).rstrip())
    # What is left of the last space outside of brackets is the return type, but an operator may
    # have spaces behind it.
    conversion = _CONVERSION.search(plain)
    head = plain[: conversion.start()] if conversion else plain
    return (prefix + head.rpartition(" ")[2].lstrip("*&") + plain[len(head) :]) or name


def printed(name: str) -> str:
    """The same of a name that another tool has printed, which may be of anything: of a function
    with parameters, or in a namespace or class of C++ or Rust. All else stays as it is.
    """
    if _WITH_PARAMETERS.match(name):
        return short(name)
    if not _SCOPE.search(name):
        return name
    plain = _without_brackets(name)
    return name if plain is None or " " in plain else short(name)


def _of_implementation(text: str) -> str | None:
    """A name of Rust that begins with <type as trait>."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">" and text[at - 1] != "-")
        if depth == 0:
            inside, behind = _without_brackets(text[1:at]), _without_brackets(text[at + 1 :])
            return (
                None
                if inside is None or behind is None
                else f"<{inside}>{_COLONS.sub(_one_pair, behind)}"
            )
    return None


def _one_pair(colons: re.Match[str]) -> str:
    is_long = len(colons[0]) > 2
    is_last = colons.end() == len(colons.string)
    return "::" if is_long and not is_last else ""


def _without_brackets(text: str) -> str | None:
    """`text` without what stands in brackets; None where these do not match, as in names of C."""
    result: list[str] = []
    depth = end = 0
    for sign in _SIGNS.finditer(text):
        start = sign.start()
        found = sign[0]
        if start < end:  # inside of braces
            continue
        if depth == 0:
            result.append(text[end:start])
        end = sign.end()
        if found in _OPENS:
            depth += 1
        elif found in _CLOSES:
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0 and found == "{":
            end = _closing(text, start)
            if text.startswith("{lambda", start):
                result.append("{lambda}")
            else:
                result.append(text[start:end])
        elif depth == 0:
            result.append(f"{{{sign['unnamed']}}}" if sign["unnamed"] else found)
    if depth:
        return None
    result.append(text[end:])
    return "".join(result)


def _closing(text: str, at: int) -> int:
    """Behind the brace that closes the one at `at`; the end of the text where there is none."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place + 1
    return len(text)
