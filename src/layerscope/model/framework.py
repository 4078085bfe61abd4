"""How a deep-learning framework names what it runs.

Everything that reads recordings knows frameworks by these declarations alone: one file of
`model/frameworks` each.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

Patterns = tuple[str, ...]


# How operators are called of frameworks whose names begin with no namespace, and that have no
# backward functions and calls of compiled functions.
PLAIN_OPERATOR = r"(?!\w+\(|(\w+::)+(?!pure_python$)|\w*Backward\d*$|AccumulateGrad$)"


class Anchor(Struct, frozen=True):
    """Functions that begin spans, so that the frames of a stack can be put around the spans.

    `frame_layer`, `function`: the layer of the frame and a pattern of its whole name.
    `span_layer`, `span`: the layer of the spans and a pattern of how their names begin. A name fits
    the patterns of anchors with the same text, and of no others.
    """

    frame_layer: str
    function: str
    span_layer: str
    span: str = ""


class Backends(Struct, frozen=True):
    """Which code does the work of an operator, by its name.

    `prefix`: how the operators of the framework begin. `title`: what its own kernels are called.
    `products`: operators that leave their work to a BLAS unless they ask for a primitive.
    `routines`: by pattern of a BLAS routine, the operators that call it once.
    The others are patterns: `convolutions` of all convolutions, `convolutions_by_onednn` and
    `products_by_onednn` of what only oneDNN does, `convolutions_by_others` of what another library
    does, with its name, `has_primitive` of operators that oneDNN has
    primitives for, `calls_others` of those among them that only call other operators.
    `onednn_switch`: what switches oneDNN off in the program.
    """

    prefix: str = ""
    title: str = ""
    products: frozenset[str] = frozenset()
    routines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    convolutions: str = ""
    convolutions_by_onednn: str = ""
    convolutions_by_others: tuple[tuple[str, str], ...] = ()
    products_by_onednn: str = ""
    has_primitive: str = ""
    calls_others: str = ""
    onednn_switch: str = ""


class PublicNames(Struct, frozen=True):
    """What says nothing about the user's program, as patterns of whole names: `pack --redact`
    keeps it.
    """

    spans: Patterns = ()
    tracks: Patterns = ()
    libraries: Patterns = ()
    packages: Patterns = ()


class Framework(Struct, frozen=True, kw_only=True):
    """A framework, and how it names what it runs. What is empty it does not have.

    `name`: how a program imports it; `title`: how people write it.
    `kinds`: the kind of a span by its name, first fit; `*` stands for any text.
    `step_prefix`: how spans begin that are one step of an optimizer.
    `backward_prefixes`: how the framework's own spans around backward functions, or around all of
    them, begin.
    `scoped`: a pattern in the arguments of operators that say what part of a program they belong
    to, and `backward_scoped` of those of a backward pass.
    Patterns, where its operators are executed later than they are called: `launches` of the names
    of calls that only ask for that, `executed` in the arguments of what is then executed, and
    `blocked` of the names of ranges in which a thread waits for it.
    `gradient_seed`: the operator that makes the first gradient of a backward pass.
    `gradient_sum`: a part of the names of backward functions that add a gradient to a parameter's.
    `iterator_seed`: the operator that a loader runs when it is iterated anew.
    `allocators`: operators that do nothing but allocate, for the operator that calls them.
    `sampler_operators`: what samplers and loaders run that makes no batch.
    `module_calls`: the functions through which every module is called, as how their name and their
    file end.
    `collectives`: functions in which a rank waits for the others, as the layer of the frame, a
    pattern of its name, how its file ends, and what to call it, where that is not its name.
    `request_classes`: of modules, a call of which answers one request; `scope_classes`: of those
    that nobody calls, which have but a name in the program.
    `environment`: how the environment variables begin that are about it and hold no secret.
    `bulks`: patterns of the names of several operators that are executed as one, and what to call
    them.
    `library`: a pattern of the name of the library that a program in C++ is linked with.
    `custom_operators`: patterns of whole names of operators that the program has added itself.
    `custom_code`: how the name of a span ends that is the code of such an operator; what that code
    calls has the name of the operator before its own.
    `calls_category`, `storage_category`: what its own profiler calls the calls of the C interface,
    and what its storage holds of each device.
    `storage_track`, `storage_counter`: the track of counters that hold the latter, and a pattern of
    their names: the kind of the device and its number.
    """

    name: str
    title: str
    kinds: tuple[tuple[str, str], ...] = ()
    step_prefix: str = ""
    backward_prefixes: tuple[str, ...] = ()
    scoped: str = ""
    backward_scoped: str = ""
    launches: str = ""
    executed: str = ""
    blocked: str = ""
    gradient_seed: str = ""
    gradient_sum: str = ""
    iterator_seed: str = ""
    allocators: tuple[str, ...] = ()
    sampler_operators: frozenset[str] = frozenset()
    anchors: tuple[Anchor, ...] = ()
    module_calls: tuple[tuple[str, str], ...] = ()
    collectives: tuple[tuple[str, str, str, str], ...] = ()
    request_classes: frozenset[str] = frozenset()
    scope_classes: frozenset[str] = frozenset()
    environment: tuple[str, ...] = ()
    bulks: tuple[tuple[str, str], ...] = ()
    library: str = ""
    custom_operators: Patterns = ()
    custom_code: str = ""
    calls_category: str = ""
    storage_category: str = ""
    storage_track: str = ""
    storage_counter: str = ""
    backends: Backends = field(default_factory=Backends)
    public: PublicNames = field(default_factory=PublicNames)

    def kind_of(self, name: str) -> str:
        """The kind of the span called `name`; empty where its name does not say it."""
        for kind, pattern in self.kinds:
            if _glob(pattern).fullmatch(name):
                return kind
        return ""


_GLOBS: dict[str, re.Pattern[str]] = {}


def _glob(pattern: str) -> re.Pattern[str]:
    """A regular expression for a text in which `*` stands for anything."""
    known = _GLOBS.get(pattern)
    if known is None:
        parts = map(re.escape, pattern.split("*"))
        known = _GLOBS[pattern] = re.compile(".*".join(parts), re.DOTALL)
    return known


def any_of(patterns: Patterns) -> re.Pattern[str]:
    """One regular expression for all of these; without any it matches nothing."""
    groups = []
    for pattern in patterns:
        if pattern:
            groups.append(f"(?:{pattern})")
    if not groups:
        return re.compile(r"(?!)")
    return re.compile("|".join(groups))
