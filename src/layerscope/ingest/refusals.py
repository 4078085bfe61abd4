"""What is lost by what could not be recorded, and the remedies. Used by `small_tables`."""

from __future__ import annotations

# What is said inside the program has no room for more than a code and a reason: code -> remedy,
# what is lost.
REFUSALS = {
    "modules_refused": (
        "run the program with CPython as it is usually built, with its GIL",
        "the calls of modules, and which module an operator belongs to",
    ),
    "build_refused": (
        "use a build that layerscope doctor says is known, or open what the framework's own "
        "profiler writes: layerscope summary profile.json",
        "operators, modules and steps of this framework",
    ),
    "custom_operators": (
        "register fewer operators under names of their own",
        "which operator in Python some code belongs to",
    ),
    "memory_lines": (
        "use CPython 3.11 to 3.14 with its GIL",
        "the lines that allocate, and which of them leaks",
    ),
    "memory_refused": (
        "use a build of the framework that layerscope doctor says is known, such as those on PyPI",
        "memory of tensors",
    ),
    "begun_late": (
        "link the program itself with the framework, and start it by layerscope run, not by a "
        "script: layerscope run -- ./program",
        "operators, and calls of the framework's C interface, until then",
    ),
    "primitives_late": (
        "let the program call set_state('run') before its first operator, or start it by "
        "layerscope run or with LAYERSCOPE_AUTOSTART=1",
        "what operators asked of oneDNN, if anything did",
    ),
    "shapes_refused": (
        "name the Python that the program runs under: layerscope run --shapes -- /path/to/python "
        "train.py",
        "shapes of inputs",
    ),
    "no_compilations": (
        "use a newer version of the framework",
        "what was compiled while the program ran, and why",
    ),
    "window_late": (
        "record again: the next time it is known how to record this build",
        "the numbers of the steps",
    ),
    "tensorflow_partly": (
        "profile it by tf.profiler too: layerscope opens the file",
        "its operators, steps and modules",
    ),
    "segments_over": (
        "open the profile that the program writes by layerscope, or let it be profiled by us",
        "operators of XLA from then on",
    ),
    "segments_full": (
        "allow more (--max-size), or record a part of the run (--after, --for)",
        "operators of XLA from then on",
    ),
    "no_segments": ("use another version of it", "operators of XLA, and steps"),
    "session_profiled": (
        "ask layerscope about that file, or leave enable_profiling to us",
        "the operators of that session",
    ),
    "sessions_unprofiled": (
        "nothing to do: every run is recorded",
        "the operators of the other sessions",
    ),
    "mkl_taken": ("unset MKL_VERBOSE", "calls of MKL"),
    "no_mkl": (
        "record with a build of the framework that has MKL, as those on PyPI for x86-64 have",
        "calls of MKL",
    ),
    "stacks_unreadable": (
        "allow process_vm_readv (seccomp)",
        "what its functions were, of C and of Python",
    ),
    "stacks_unsignalled": (
        "allow perf_event_open: layerscope doctor has the command",
        "its stacks on a CPU",
    ),
    "stacks_refused": (
        "raise the limits of memory (ulimit -v), and allow memfd_create (seccomp)",
        "its stacks",
    ),
    "shapes_full": (
        "record fewer steps, or pad inputs to fewer sizes",
        "shapes of inputs that came later",
    ),
}
# Of what the drainer could not read: what it is, remedy, what is lost.
UNREAD = {
    "io": (
        "/proc/PID/io",
        "record as the user that it runs as, or as root",
        "bytes that it read and wrote",
    ),
    "status": (
        "/proc/PID/status",
        "record as the user that it runs as, or as root",
        "its peak of memory",
    ),
    "cgroup": (
        "the control group",
        "mount /sys/fs/cgroup (in a container: read-only is enough)",
        "throttling",
    ),
}
