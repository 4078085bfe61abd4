"""The layers of the stack and the kinds of span.

The numbers that the agent writes for kinds are in `native/layout.h`; each raw file declares them.
"""

from __future__ import annotations

OPERATORS = "operators"
MODULES = "modules"
API = "api"
RANGES = "ranges"
PRIMITIVES = "primitives"
COUNTERS = "counters"
STACKS = "stacks"
MEMORY = "memory"
GPU = "gpu"
RUNTIME = "runtime"
PYTHON = "python"
# What each layer holds; docs/layers/NAME.md has the rest.
MEANINGS = {
    OPERATORS: "Every operator, backward function, `record_function` range, optimizer step and "
    "loader wait.",
    MODULES: "Every call of a part of the network, and which of them each operator belongs to.",
    API: "Every call of a framework's C interface, and every operator that it hands to the "
    "engine of the framework, which executes it later.",
    RANGES: "Tasks, frames and events that the program marks with the library, with NVTX or with "
    "ITT, and what a framework compiles meanwhile.",
    PRIMITIVES: "What operators ask of oneDNN and MKL, and what each thread has of it.",
    RUNTIME: "Every call of the libraries that hand work to a GPU: launches, copies and waits of "
    "CUDA, its driver and HIP.",
    GPU: "Every kernel that a GPU executes, every copy and every fill of memory, by stream.",
    PYTHON: "Every call of a function of Python and of C, where a trace of another tool has them.",
    STACKS: "What every thread does on a CPU, sampled 99 times a second of CPU time, and what it "
    "waits for.",
    MEMORY: "Every allocation of a tensor on the CPU and its release, with operator, module and "
    "source line.",
    COUNTERS: "What the system accounts for each process over time, and what the program counts "
    "itself.",
}
# The tracks with what was read from the system about a process, its control group and the machine,
# and what malloc said of its heap; every other track of counters is the program's own.
PROCESS_COUNTERS = "process"
GROUP_COUNTERS = "cgroup"
MACHINE_COUNTERS = "machine"
HEAP_COUNTERS = "malloc"
SYSTEM_COUNTERS = (PROCESS_COUNTERS, GROUP_COUNTERS, MACHINE_COUNTERS, HEAP_COUNTERS)
# Those of the system's that only grow: their difference means something and their level does not.
CUMULATIVE = (
    "cpu_ns",
    "user_ns",
    "system_ns",
    "delay_ns",
    "switches_voluntary",
    "switches_forced",
    "migrations",
    "faults_minor",
    "faults_major",
    "rchar_bytes",
    "wchar_bytes",
    "storage_read_bytes",
    "storage_written_bytes",
    "throttled",
    "throttled_ns",
    "machine_cpu_ns",
    "machine_stolen_ns",
    "machine_cpu_pressure_ns",
    "machine_io_pressure_ns",
    "machine_memory_pressure_ns",
)

# The kinds of spans; `rawfile.layout.SPAN_KINDS` has those that the agent writes.
KINDS = (
    "function",
    "backward",
    "range",
    "optimizer",
    "loader",
    "module",
    "task",
    "frame",
    "event",
    "call",
    "submit",
    "execute",
    "create",
    "share",
    "kernel",
    "memcpy",
    "memset",
    "launch",
    "sync",
    "runtime",
    "call",
)
# Two layers have calls: the first ones are of `api`, these are of `python`.
PYTHON_CALL = len(KINDS) - 1
# The layers of spans, and the layer of each kind as an index into them.
SPAN_LAYERS = (OPERATORS, MODULES, RANGES, PRIMITIVES, API, GPU, RUNTIME, PYTHON)
LAYER_OF_KIND = (0, 0, 0, 0, 0, 1, 2, 2, 2, 4, 4, 3, 3, 3, 5, 5, 5, 6, 6, 6, 7)
# The layers of frames (`frames.layer`), from the outside in as a fused stack has them.
FRAME_LAYERS = (
    "python",
    "modules",
    "operators",
    "api",
    "ranges",
    "primitives",
    "runtime",
    "gpu",
    "native",
    "kernel",
)
SAMPLE_KINDS = ("cpu", "offcpu", "fault")
# `samples.state` of each kind.
WAITS = (
    "gil",
    "lock",
    "barrier",
    "pool",
    "sleep",
    "yield",
    "pipe",
    "socket",
    "file",
    "event",
    "page_fault",
    "preempted",
    "child",
    "join",
    "backward",
    "gpu",
    "stopped",
    "other",
    "unknown",
)
SAMPLE_STATES = ("user", "kernel", *WAITS)
# Kinds of `links`: from an operator to the backward function of it, from an operator to a primitive
# that it asked for, from a primitive to the part of it that ran on another thread, from a
# submission to the operator that was submitted, from a call of a runtime to the work of a GPU that
# it launched, from an operator to that work.
LINKS = (
    "forward_backward",
    "operator_primitive",
    "primitive_share",
    "submit_execute",
    "launch_gpu",
    "operator_gpu",
)
# The kinds of tracks of spans: a thread, a stream of a GPU, or requests that follow each other; of
# those that are answered at the same time each has a track of its own.
THREAD, STREAM, REQUESTS = "thread", "stream", "requests"
# What the record of a mark says in its field `module`.
MARKS = (
    "marker",
    "step",
    "paused",
    "resumed",
    "problem",
    "opened",
    "closed",
    "named",
    "begins",
    "ends",
    "raised",
    "setting",
)

# The rules by which a step is a request, or a call that may be one (`ingest.rules`).
ANSWERING = ("served", "request")
PHASES = ("loading", "forward", "backward", "optimizer", "other")
