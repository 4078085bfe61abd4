"""The tables of a recording: every column with its type, unit and meaning.

The documentation of the tables is generated from here, the writer takes its Arrow schema from
here, and the reader refuses a recording whose `SCHEMA_VERSION` is newer than its own.
Times are int64 nanoseconds on the run's clock (CLOCK_MONOTONIC of the recording host).
"""

from __future__ import annotations

from layerscope.model.memory_tables import ALLOCATIONS
from layerscope.model.sample_tables import FRAMES, SAMPLES, STACKS
from layerscope.model.table import Column, Table

SCHEMA_VERSION = 13
# Of the histograms: a duration falls into the bin of the largest power of this that it reaches. A
# percentile read from the middle of its bin is off by 0.5 % at most.
BIN = 1.01


PROCESSES = Table(
    "processes",
    "The processes that were recorded.",
    (
        Column("process", "int32", "key of the process in this recording", key="process"),
        Column("pid", "int32", "process id as the recorder saw it"),
        Column("ppid", "int32", "process id of its parent", nullable=True),
        Column("rank", "int32", "rank in a distributed job", nullable=True),
        Column(
            "role",
            "string",
            "what it does in a distributed job, where it is no rank: server, scheduler",
            nullable=True,
        ),
        Column("host", "string", "host name"),
        Column("argv", "string", "command line, secrets masked"),
        Column("start_ns", "int64", "when it started", "ns", instant=True),
        Column(
            "end_ns",
            "int64",
            "when it ended; null while unknown",
            "ns",
            nullable=True,
            instant=True,
        ),
        Column("exit", "int32", "exit status, or minus the signal", nullable=True),
        Column(
            "about",
            "string",
            "a JSON object: what a trace tells of the job and its GPUs (deviceProperties, "
            "distributedInfo)",
            nullable=True,
        ),
    ),
)

TRACKS = Table(
    "tracks",
    "What carries spans in time order: threads, GPU streams, queues, counters. Thread ids are "
    "reused, tracks are not.",
    (
        Column("track", "int32", "key of the track", key="track"),
        Column("process", "int32", "its process", key="process"),
        Column("kind", "name", "thread, stream, requests, queue or counter"),
        Column("tid", "int32", "thread id of the operating system", nullable=True),
        Column("device", "int32", "number of the GPU that has the stream", nullable=True),
        Column("name", "string", "name of the thread; of a stream: stream 7"),
        Column("start_ns", "int64", "when it was first seen", "ns", instant=True),
        Column(
            "end_ns",
            "int64",
            "when the thread ended; null while unknown",
            "ns",
            nullable=True,
            instant=True,
        ),
        Column(
            "cpu_ns",
            "int64",
            "CPU time of the thread; known, as what follows, with stacks",
            "ns",
            nullable=True,
        ),
        Column(
            "delay_ns", "int64", "time in which it could run and had no CPU", "ns", nullable=True
        ),
        Column(
            "switches_voluntary", "int64", "how often it gave its CPU up to wait", nullable=True
        ),
        Column("switches_forced", "int64", "how often its CPU was taken from it", nullable=True),
        Column(
            "migrations",
            "int64",
            "how often it came onto another CPU; null where it is not known",
            nullable=True,
        ),
        Column("faults_minor", "int64", "its page faults without reading from disk", nullable=True),
        Column("faults_major", "int64", "its page faults with reading from disk", nullable=True),
    ),
)

SPANS = Table(
    "spans",
    "Every recorded stretch of time: an operator, a backward function, a range, an optimizer step, "
    "a loader wait, a call of a module or of a framework's C interface, a primitive of oneDNN or "
    "MKL, work of a GPU and the call that launched it, a call of a function of Python.",
    (
        Column("span", "int64", "key of the span", key="span"),
        Column(
            "track",
            "int32",
            "the track it ran on (where it started, if it ended on another thread)",
            key="track",
        ),
        Column("parent", "int64", "the span it lies in on its track", nullable=True, key="span"),
        Column("depth", "int32", "number of spans that were open on the track when it started"),
        Column("start_ns", "int64", "start", "ns", instant=True),
        Column("dur_ns", "int64", "duration", "ns"),
        Column("self_ns", "int64", "duration without the children of the same layer", "ns"),
        Column(
            "layer",
            "name",
            "layer of the stack: operators, modules, api, ranges, primitives, gpu, runtime or "
            "python",
        ),
        Column(
            "kind",
            "name",
            "function, backward, range, optimizer, loader; module; call, submit; task, frame, "
            "event; execute, create, share; kernel, memcpy, memset; launch, sync, runtime; call",
        ),
        Column("name", "name", "name"),
        Column(
            "line",
            "name",
            "file:line that opened a range or submitted an operator; a module has its first call",
            nullable=True,
        ),
        Column(
            "module",
            "int32",
            "the innermost module whose call it ran or was submitted in, or whose backward pass",
            nullable=True,
            key="module",
        ),
        Column("step", "int32", "the step it started or was submitted in", nullable=True),
        Column(
            "phase",
            "name",
            "loading, forward, backward, optimizer, other; null outside steps",
            nullable=True,
        ),
        Column(
            "correlation",
            "int64",
            "number that a call of a runtime and the work of a GPU that it launched have in common",
            nullable=True,
        ),
        Column(
            "sequence",
            "int32",
            "autograd sequence number; number of a submission, and of what was submitted",
            nullable=True,
        ),
        Column("args", "int64", "key of its arguments", nullable=True, key="args"),
        Column(
            "weight",
            "int32",
            "how many spans of the run it stands for (1 unless the run was thinned)",
        ),
        Column("unfinished", "bool", "it was still open when the recording of its process ended"),
    ),
)

MODULES = Table(
    "modules",
    "The modules that were called: parts of the network, by their path from the module that the "
    "program calls.",
    (
        Column(
            "module",
            "int32",
            "key of the module: the same path and class in every process have one",
            key="module",
        ),
        Column("parent", "int32", "the module that holds it", nullable=True, key="module"),
        Column(
            "path",
            "string",
            "path from the outermost module, which is called by its class: Net.conv1",
        ),
        Column("class", "string", "its class"),
        Column("line", "string", "file:line of its first call", nullable=True),
    ),
)

PRIMITIVES = Table(
    "primitives",
    "Every span of the layer primitives: what operators asked of a library, as the "
    "library tells it.",
    (
        Column("span", "int64", "its span", key="span"),
        Column(
            "operator",
            "int64",
            "the operator or backward function that asked for it",
            nullable=True,
            key="span",
        ),
        Column(
            "share_of",
            "int64",
            "of a share: the primitive on another thread that it is a part of",
            nullable=True,
            key="span",
        ),
        Column("library", "name", "oneDNN or MKL"),
        Column(
            "primitive_kind",
            "name",
            "convolution, matmul, reorder, ...; of MKL gemm, fft, lapack or other",
        ),
        Column(
            "implementation",
            "name",
            "the code that ran: jit:avx512_core; null: not known",
            nullable=True,
        ),
        Column(
            "prop_kind",
            "name",
            "forward_training, forward_inference, backward_data, ...",
            nullable=True,
        ),
        Column(
            "dtype",
            "name",
            "types of its source, weights and destination: f32, or u8s8f32",
            nullable=True,
        ),
        Column("formats", "name", "memory layouts, as the library names them", nullable=True),
        Column(
            "attributes",
            "name",
            "scratchpad, scales, post-ops: what is fused into it",
            nullable=True,
        ),
        Column("algorithm", "name", "alg:convolution_direct and the like", nullable=True),
        Column(
            "problem",
            "name",
            "shapes, as the library writes them: mb8_ic3oc32_ih32oh32kh3...",
            nullable=True,
        ),
        Column(
            "threads",
            "int32",
            "threads that took part, as far as they were recorded; null for shares and creation",
            nullable=True,
        ),
        Column(
            "flop",
            "int64",
            "floating-point operations of the problem; null: no formula for it",
            nullable=True,
        ),
        Column(
            "bytes",
            "int64",
            "bytes of its sources and destinations, each once",
            "bytes",
            nullable=True,
        ),
        Column(
            "cache_hit",
            "bool",
            "of a creation: the library had it already; null: not known",
            nullable=True,
        ),
    ),
)

ARGS = Table(
    "args",
    "Arguments of spans; each distinct text once, of several ranks once in each.",
    (
        Column("args", "int64", "key of the arguments", key="args"),
        Column("json", "string", "a JSON object"),
    ),
)

MARKS = Table(
    "marks",
    "Moments that the program marked, where a call of a module ended by an exception, and what the "
    "program set itself.",
    (
        Column("track", "int32", "the track that marked it", key="track"),
        Column("at_ns", "int64", "when", "ns", instant=True),
        Column(
            "kind",
            "name",
            "marker, step, paused, resumed, opened or closed (a window of --steps, --after or "
            "--paused), raised, setting; outside: by layerscope mark, on the track of the "
            "program's first thread",
        ),
        Column(
            "name",
            "name",
            "name; of raised: the text of the exception; of setting: NAME=VALUE of a variable that "
            "the program set before a framework read it, or an optimizer and its parameters",
        ),
        Column(
            "args",
            "int64",
            "key of its arguments; of raised: the operator that raised it; of setting: its domain, "
            "variable or optimizer",
            nullable=True,
            key="args",
        ),
    ),
)

STEPS = Table(
    "steps",
    "The iterations of a training or inference loop, and where their time went. The five phases "
    "add up to dur_ns.",
    (
        Column("step", "int32", "number of the step in its process, from 0"),
        Column("process", "int32", "its process", key="process"),
        Column(
            "rule",
            "name",
            "what a step was taken to be: mark, optimizer, loader, served, request or none",
        ),
        Column(
            "optimizer", "int32", "instance of the optimizer that ends the steps", nullable=True
        ),
        Column("start_ns", "int64", "start", "ns", instant=True),
        Column("dur_ns", "int64", "duration", "ns"),
        Column("load_ns", "int64", "time in the data loader", "ns"),
        Column("forward_ns", "int64", "time in the forward pass", "ns"),
        Column("backward_ns", "int64", "time in the backward pass", "ns"),
        Column("optimizer_ns", "int64", "time in the optimizer", "ns"),
        Column("other_ns", "int64", "the rest", "ns"),
        Column("warmup", "bool", "left out of averages as warm-up"),
        Column("weight", "int32", "how many steps its spans stand for; 0: they were thinned away"),
    ),
)

TOTALS = Table(
    "totals",
    "Exact sums over the whole run, whatever its length: of every span, those included that were "
    "thinned away.",
    (
        Column("total", "int32", "key of the row", key="total"),
        Column("process", "int32", "the process", key="process"),
        Column("layer", "name", "layer"),
        Column("kind", "name", "kind"),
        Column("name", "name", "name"),
        Column("module", "int32", "the module they belong to", nullable=True, key="module"),
        Column("step_class", "name", "step or outside: whether they started in a step; unknown"),
        Column("count", "int64", "number of spans that ended"),
        Column("total_ns", "int64", "sum of their durations", "ns"),
        Column(
            "self_ns",
            "int64",
            "sum of their self times; null where they were only counted",
            "ns",
            nullable=True,
        ),
        Column("min_ns", "int64", "shortest", "ns", nullable=True),
        Column("max_ns", "int64", "longest", "ns", nullable=True),
    ),
)

HISTOGRAMS = Table(
    "histograms",
    "Durations of the spans of each row of `totals`, in bins 1 % wide. Only where the run was "
    "thinned.",
    (
        Column("total", "int32", "the row of `totals`", key="total"),
        Column("from_ns", "int64", "durations from here, up to 1 % more", "ns"),
        Column("count", "int64", "number of spans that ended"),
    ),
)

COUNTERS = Table(
    "counters",
    "Values of a process over time. Cumulative counters count from the start of their process.",
    (
        Column("track", "int32", "the track of kind counter it belongs to", key="track"),
        Column("at_ns", "int64", "when it was read", "ns", instant=True),
        Column(
            "name",
            "name",
            "cpu_ns, user_ns, system_ns, faults_minor, faults_major, rss_bytes, rss_peak_bytes, "
            "rss_anonymous_bytes, rss_file_bytes, rss_shared_bytes, threads, rchar_bytes, "
            "wchar_bytes, storage_read_bytes, storage_written_bytes; with "
            "stacks also delay_ns, switches_voluntary, switches_forced, migrations; of the control "
            "group throttled, throttled_ns, group_memory_bytes, group_memory_limit_bytes; of the "
            "machine machine_cpu_ns, machine_stolen_ns, machine_cpu_pressure_ns, "
            "machine_io_pressure_ns, machine_memory_pressure_ns; of the heap, with memory, "
            "in_use_bytes, free_bytes, python_bytes; or a counter of the program",
        ),
        Column("value", "int64", "its value"),
        Column("unit", "name", "ns, bytes or count"),
    ),
)

LINKS = Table(
    "links",
    "Pairs of spans that belong together.",
    (
        Column("from_span", "int64", "the cause", key="span"),
        Column("to_span", "int64", "the effect", key="span"),
        Column(
            "kind",
            "name",
            "forward_backward: an operator and the backward function of it; operator_primitive: an "
            "operator and a primitive that it asked for; primitive_share: a primitive and the part "
            "of it on another thread; submit_execute: a submission and the operator that was "
            "submitted; launch_gpu: a call of a runtime and the work of a GPU that it launched; "
            "operator_gpu: the innermost operator that asked for that work, and the work",
        ),
    ),
)

CLOCK_READINGS = Table(
    "clock_readings",
    "The same moment on two clocks, so that a foreign time can be put on the run's clock.",
    (
        Column("clock", "name", "tsc or realtime"),
        Column("clock_value", "int64", "what that clock read"),
        Column("run_ns", "int64", "what the run's clock read", "ns", instant=True),
        Column("error_ns", "int64", "half the time the reading took", "ns"),
    ),
)

GAPS = Table(
    "gaps",
    "What was lost, with its exact count.",
    (
        Column("track", "int32", "where", nullable=True, key="track"),
        Column(
            "process", "int32", "the process, where no track is known", nullable=True, key="process"
        ),
        Column("start_ns", "int64", "start of the gap", "ns", instant=True),
        Column("end_ns", "int64", "end of the gap", "ns", instant=True),
        Column(
            "lost",
            "int64",
            "number of records lost; null where they could not be counted",
            nullable=True,
        ),
        Column(
            "reason",
            "name",
            "ring_full, too_deep, no_ring, disk_full, max_size, after_end, no_sampler, no_segment, "
            "open_requests or damaged",
        ),
    ),
)

PROBLEMS = Table(
    "problems",
    "What could not be recorded, why, and what to do about it.",
    (
        Column("layer", "name", "the layer that is missing something"),
        Column("code", "string", "stable name of the problem"),
        Column("what", "string", "what happened"),
        Column("remedy", "string", "what to do"),
        Column("lost", "string", "what the recording lacks because of it"),
    ),
)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        PROCESSES,
        TRACKS,
        SPANS,
        MODULES,
        PRIMITIVES,
        ARGS,
        MARKS,
        STEPS,
        TOTALS,
        HISTOGRAMS,
        COUNTERS,
        ALLOCATIONS,
        FRAMES,
        STACKS,
        SAMPLES,
        LINKS,
        CLOCK_READINGS,
        GAPS,
        PROBLEMS,
    )
}
