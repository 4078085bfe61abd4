"""The tables of stacks: frames, stacks and samples."""

from __future__ import annotations

from layerscope.model.table import Column, Table

# Frames in place of those that nobody knows: of callers, and of what a stack that is too deep has
# between its outer and its inner ones.
CUT, LEFT_OUT = "[outer frames not known]", "[frames left out]"

FRAMES = Table(
    "frames",
    "What stacks are made of: functions and lines of Python, modules, operators, primitives, "
    "native functions, the kernel.",
    (
        Column("frame", "int32", "key of the frame", key="frame"),
        Column(
            "layer", "name", "python, modules, operators, api, ranges, primitives, native or kernel"
        ),
        Column(
            "name", "string", "function without parameters, operator, ...; of a module its path"
        ),
        Column("signature", "string", "the whole name, where it differs", nullable=True),
        Column("file", "string", "its source file, as far as it is known", nullable=True),
        Column("line", "int32", "line in that file", nullable=True),
        Column(
            "object",
            "string",
            "the library or program its code lies in; [jit]: in none",
            nullable=True,
        ),
        Column("build_id", "string", "the build of that, in hexadecimal digits", nullable=True),
        Column("address", "int64", "where in the object, as its symbols count", nullable=True),
    ),
)
STACKS = Table(
    "stacks",
    "Every sampled stack, as a tree: each is the stack of its parent with one frame more.",
    (
        Column("stack", "int32", "key of the stack; a parent's is smaller", key="stack"),
        Column(
            "parent",
            "int32",
            "the stack without its innermost frame; null for the outermost",
            nullable=True,
            key="stack",
        ),
        Column("frame", "int32", "its innermost frame", key="frame"),
        Column("depth", "int32", "number of frames around that one"),
    ),
)
SAMPLES = Table(
    "samples",
    "What threads were doing when they were sampled: on a CPU, at a fixed rate of CPU time; off "
    "the CPU, from when they began to wait.",
    (
        Column("at_ns", "int64", "when; of a wait when it began", "ns", instant=True),
        Column("track", "int32", "the thread", key="track"),
        Column(
            "stack",
            "int32",
            "its stack; null where only the time is known",
            nullable=True,
            key="stack",
        ),
        Column(
            "weight_ns",
            "int64",
            "cpu: the CPU time it stands for; offcpu: how long; fault: 0",
            "ns",
        ),
        Column(
            "count",
            "int64",
            "fault: how many page faults it stands for; cpu: 0 where the next row is the rest of "
            "the sample, its time in the kernel; else 1",
        ),
        Column("kind", "name", "cpu, offcpu or fault"),
        Column(
            "rate_hz",
            "int32",
            "cpu: how many samples were taken of a second of CPU time then: fewer than asked for "
            "where the budget of the recording needed it",
            nullable=True,
        ),
        Column(
            "state",
            "name",
            "cpu: user, kernel; offcpu: gil, lock, barrier, pool, sleep, yield, pipe, socket, "
            "file, event, page_fault, preempted, child, join, backward, gpu, stopped, other, "
            "unknown; fault: user",
        ),
        Column(
            "idle", "bool", "a wait for work of a thread of a pool: folded away unless asked for"
        ),
        Column(
            "exact",
            "bool",
            "weight_ns was measured from end to end; else it stands for more than was sampled",
        ),
        Column(
            "span",
            "int64",
            "the innermost span that was open on the thread, or that it worked for",
            nullable=True,
            key="span",
        ),
        Column("step", "int32", "the step it began in", nullable=True),
        Column(
            "phase",
            "name",
            "loading, forward, backward, optimizer, other; null outside steps",
            nullable=True,
        ),
        Column(
            "waker", "int32", "offcpu: the track that ended the wait", nullable=True, key="track"
        ),
    ),
)
