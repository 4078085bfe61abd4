"""The frameworks that layerscope knows: one file each, with a `FRAMEWORK`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable

from layerscope.model.framework import Anchor, Backends, Framework, any_of


@functools.cache
def frameworks() -> tuple[Framework, ...]:
    """All of them, by name."""
    modules = pkgutil.iter_modules(__path__)
    found: list[Framework] = []
    for name in sorted(module.name for module in modules):
        module = importlib.import_module(f"{__name__}.{name}")
        found.append(module.FRAMEWORK)
    return tuple(found)


def called(name: str) -> Framework | None:
    """The framework that is imported as `name`; None: there is none."""
    for framework in frameworks():
        if framework.name == name:
            return framework
    return None


def titles(in_libraries: bool = False) -> str:
    """How people write them: "PyTorch or MXNet"; `in_libraries`: those that programs in C++ use."""
    chosen = [one for one in frameworks() if one.library or not in_libraries]
    *first, last = (framework.title for framework in chosen)
    if not first:
        return last
    others = ", ".join(first)
    return f"{others} or {last}"


def step_prefixes() -> tuple[str, ...]:
    """How the names of spans begin that are one step of an optimizer."""
    every = frameworks()
    return _texts(one.step_prefix for one in every)


@functools.cache
def launches() -> re.Pattern[str]:
    """The names of calls that ask for something to be executed later."""
    return any_of(tuple(one.launches for one in frameworks()))


@functools.cache
def executed() -> re.Pattern[str]:
    """What the arguments contain of what is executed then."""
    return any_of(tuple(one.executed for one in frameworks()))


@functools.cache
def blocked() -> re.Pattern[str]:
    """The names of ranges in which a thread waits for that."""
    return any_of(tuple(one.blocked for one in frameworks()))


def in_backward(arguments: str) -> bool | None:
    """Whether these arguments of an operator, JSON, say that it belongs to a backward pass; None:
    they do not say what it belongs to.
    """
    if not _scoped().search(arguments):
        return None
    return _backward_scoped().search(arguments) is not None


@functools.cache
def _scoped() -> re.Pattern[str]:
    return any_of(tuple(one.scoped for one in frameworks()))


@functools.cache
def _backward_scoped() -> re.Pattern[str]:
    return any_of(tuple(one.backward_scoped for one in frameworks()))


def backward_prefixes() -> tuple[str, ...]:
    """How the names of spans begin that frameworks open around backward functions."""
    every = frameworks()
    prefixes = (prefix for one in every for prefix in one.backward_prefixes)
    return _texts(prefixes)


def gradient_seeds() -> tuple[str, ...]:
    """The operators that make the first gradient of a backward pass."""
    every = frameworks()
    return _texts(one.gradient_seed for one in every)


def gradient_sums() -> tuple[str, ...]:
    """Parts of the names of backward functions that add a gradient to a parameter's."""
    every = frameworks()
    return _texts(one.gradient_sum for one in every)


def iterator_seeds() -> tuple[str, ...]:
    """The operators that loaders run when they are iterated anew."""
    every = frameworks()
    return _texts(one.iterator_seed for one in every)


def allocators() -> tuple[str, ...]:
    """The operators that do nothing but allocate."""
    every = frameworks()
    names = (name for one in every for name in one.allocators)
    return _texts(names)


@functools.cache
def sampler_operators() -> frozenset[str]:
    """What samplers and loaders run that makes no batch."""
    found: set[str] = set()
    for framework in frameworks():
        found |= framework.sampler_operators
    return frozenset(found)


@functools.cache
def scope_classes() -> frozenset[str]:
    """The classes of modules that nobody calls."""
    return frozenset().union(*(one.scope_classes for one in frameworks()))


@functools.cache
def request_classes() -> frozenset[str]:
    """Classes of modules, a call of which answers one request."""
    found: set[str] = set()
    for framework in frameworks():
        found |= framework.request_classes
    return frozenset(found)


@functools.cache
def products() -> frozenset[str]:
    """Operators that leave their work to a BLAS unless they ask for a primitive."""
    found: set[str] = set()
    for framework in frameworks():
        found |= framework.backends.products
    return frozenset(found)


def anchors() -> tuple[Anchor, ...]:
    """The functions of all frameworks that begin spans."""
    found: list[Anchor] = []
    for framework in frameworks():
        found += framework.anchors
    return tuple(found)


def module_calls() -> tuple[tuple[str, str], ...]:
    """How the names and the files of the functions end through which every module is called."""
    calls: list[tuple[str, str]] = []
    for framework in frameworks():
        calls += framework.module_calls
    return tuple(calls)


@functools.cache
def collective_functions() -> tuple[tuple[str, re.Pattern[str], str, str], ...]:
    """The functions of all frameworks in which a rank waits for the others: layer, name, file, and
    what to call it.
    """
    found: list[tuple[str, re.Pattern[str], str, str]] = []
    for framework in frameworks():
        for layer, name, file, title in framework.collectives:
            found.append((layer, re.compile(name), file, title))
    return tuple(found)


def routines() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """By pattern of a BLAS routine, the operators that call it once."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for framework in frameworks():
        backends = framework.backends
        found += backends.routines
    return tuple(found)


def backends_of(name: str) -> Backends | None:
    """Those of the framework whose operator `name` is; None where its name does not say."""
    for one in frameworks():
        if one.backends.prefix and name.startswith(one.backends.prefix):
            return one.backends
    return None


@functools.cache
def kind_of(name: str) -> str:
    """The kind of the span called `name`; empty where its name does not say it."""
    for framework in frameworks():
        kind = framework.kind_of(name)
        if kind:
            return kind
    return ""


def matching(pattern_of: Callable[[Framework], str | tuple[str, ...]]) -> re.Pattern[str]:
    """One regular expression for what this gives of each framework."""
    found: list[str] = []
    every = frameworks()
    for framework in every:
        patterns = pattern_of(framework)
        if isinstance(patterns, str):
            found.append(patterns)
        else:
            found += patterns
    return any_of(tuple(found))


def custom_operators(names: Iterable[str]) -> frozenset[str]:
    """Those of these operators that the program has added to its framework."""
    every, found = frozenset(names), set[str]()
    for one in frameworks():
        # Patterns are those of a framework that was used: others name their operators another way.
        if any(name.startswith(one.backends.prefix) for name in every):
            known = any_of(one.custom_operators)
            found |= {name for name in every if known.fullmatch(name)}
        suffix = one.custom_code
        if suffix:
            prefixes = tuple(name[: -len(suffix)] + "::" for name in every if name.endswith(suffix))
            found |= {name for name in every if name.startswith(prefixes)}
    return frozenset(found)


def calls_category() -> str:
    """What profilers of frameworks call the calls of a C interface."""
    return next(filter(None, (one.calls_category for one in frameworks())), "")


def storage_of(track: str, counter: str) -> tuple[str, str] | None:
    """The category and the device of a counter of what a framework's storage holds; None: it is
    another counter.
    """
    for one in frameworks():
        device = re.fullmatch(one.storage_counter, counter) if one.storage_track == track else None
        if device is not None:
            return one.storage_category, "/".join(device.groups())
    return None


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Without the empty ones."""
    found = filter(None, texts)
    return tuple(found)
