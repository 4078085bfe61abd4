"""A recording without what could tell whose it is: what `pack --redact` puts into the file.

Kept are numbers, times, the names of operators, modules, optimizers and loaders with their classes,
and versions. Everything else is dropped, or kept only if it is on a list:

- command lines: the interpreter and the script's or module's name; no folder, no argument
- environment: the names of the variables, no value; working directory, thread and process ids of
  our own: nothing
- host: CPU, memory, the number of the kernel; hosts are called host-1, host-2
- ranges, tasks, marks, counters and threads that the program named: a code, unless the name is a
  framework's own or a word that says nothing (`forward`, `epoch`). The code comes from the name and
  from the recording's random id, which is replaced too: it is the same wherever the name occurs in
  the recording, and nobody finds the name by trying
- functions of Python and of native code in stacks: a code, unless they are of the interpreter, its
  standard library, a framework or a library that those use; of libraries no path, build, file
- arguments of spans, shapes and attributes of primitives, lines of modules and ranges: nothing
- sentences about problems: paths, hosts, and every word of the command line, of the environment or
  of the recording's own path, are masked, and so is what `--step-mark` named
- the raw files and summary.txt: nothing, they repeat all of this
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layerscope.model.framework import any_of
from layerscope.model.frameworks import frameworks
from layerscope.model.schema import TABLES
from layerscope.model.secrets import MASK
from layerscope.recording.reader import Reader, in_recording, parts_of, reading, table_files
from layerscope.recording.run import LayerState, Run, RunInfo
from layerscope.recording.writer import arrow_schema, parquet_options

# Of the facts about the machine (host/machine.py), those that thousands of machines share.
_HOST_FACTS = {
    "cpu": (
        "model",
        "vendor",
        "machine",
        "online",
        "allowed",
        "granted",
        "sockets",
        "cores",
        "allowed_cores",
        "smt",
        "faster",
        "slower",
        "governor",
        "boost",
        "most_mhz",
        "caches",
        "is_virtual",
        "clocksource",
    ),
    "isa": ("architecture", "flags", "support", "amx", "level"),
    "cgroup": ("version", "memory_limit_bytes", "cpus"),
    "memory": (
        "total_bytes",
        "swap_bytes",
        "thp",
        "thp_defrag",
        "huge_pages",
        "swappiness",
        "overcommit",
    ),
}
# Columns of text that say nothing about whose recording it is. One that is neither here nor changed
# is dropped.
_KEPT = frozenset(
    (
        "tracks.kind",
        "spans.layer",
        "spans.kind",
        "spans.phase",
        "processes.role",
        "modules.path",
        "modules.class",
        "marks.kind",
        "steps.rule",
        "totals.layer",
        "totals.kind",
        "totals.step_class",
        "counters.unit",
        "links.kind",
        "clock_readings.clock",
        "gaps.reason",
        "problems.layer",
        "problems.code",
        "primitives.library",
        "primitives.primitive_kind",
        "primitives.implementation",
        "primitives.prop_kind",
        "primitives.dtype",
        "primitives.formats",
        "primitives.algorithm",
        "frames.layer",
        *(f"samples.{name}" for name in ("kind", "state", "phase")),
        *(f"allocations.{name}" for name in ("device", "allocator", "operator", "phase")),
    )
)
_CHANGED = frozenset(
    (
        "processes.host",
        "processes.argv",
        "tracks.name",
        "spans.name",
        "totals.name",
        "marks.name",
        "counters.name",
        "problems.what",
        "problems.remedy",
        "problems.lost",
        "frames.name",
        "frames.object",
    )
)
# Kinds of spans that the program itself names.
_NAMED_BY_PROGRAM = ("range", "task", "frame", "event")
# The layers of frames that ranges are in.
_OF_RANGES = pa.array(["ranges", "operators"])
_SAYS_NOTHING = (
    "forward|backward|step|zero_grad|loss|criterion|optimizer|optimizer_step|epoch|batch|iteration|train|training|eval|"
    "evaluate|evaluation|val|validation|test|inference|predict|data|data_loading|load|loading|model|total"
)
_PUBLIC = [framework.public for framework in frameworks()]
_KNOWN_NAME = any_of(
    (
        _SAYS_NOTHING,
        r"(?:nccl|gloo|mpi|ucc):\w+",
        r"\(other names\)",
        r"\(name lost\)",
        *(pattern for public in _PUBLIC for pattern in public.spans),
    )
)
_KNOWN_TRACK = any_of(
    (
        r"|process|cgroup|machine|malloc|program|python[\d.]*|MainThread|Thread-\d+|ThreadPoolExec\w*",
        *(pattern for public in _PUBLIC for pattern in public.tracks),
    )
)
_KNOWN_COUNTER = re.compile(
    r"(?:cpu|user|system|delay|throttled)_ns|faults_(?:minor|major)|switches_(?:voluntary|forced)|migrations|threads|"
    r"(?:rss|rss_peak|rchar|wchar|storage_read|storage_written|group_memory|group_memory_limit)_bytes|throttled|"
    r"(?:rss_(?:anonymous|file|shared)|in_use|free)_bytes|machine_(?:cpu|stolen|(?:cpu|io|memory)_pressure)_ns"
)
# Whose functions everybody has: the interpreter's, its standard library's, the frameworks' and
# those of what they use.
_LIBRARIES = (
    r"lib(?:gomp|i?omp|dnnl|mkldnn|mkl|openblas|cu|nccl|nv|c|m|pthread|dl|stdc\+\+|gcc_s)",
    r"libpython[\d.]*",
    *(library for public in _PUBLIC for library in public.libraries),
)
_KNOWN_OBJECT = re.compile(
    rf"(?:.*/)?((?:(?:{'|'.join(_LIBRARIES)})(?:[-_.]\S*)?\.so[\d.]*|_?multiarray\S*|ld-linux\S*|"
    r"python[\d.]*))|\[jit\]"
)
# What oneDNN calls the code that it makes. Others, CPython with -X perf among them, call theirs by
# the program's functions and files.
_KNOWN_JIT = re.compile(r"\[jit\]|_?(?:jit|brgemm|gemm|xbyak|avx|sse|amx)\w*(?:\.\d+)?")
_PACKAGES = ("numpy", *(package for public in _PUBLIC for package in public.packages))
_KNOWN_FILE = re.compile(
    rf".*/(?:site-packages/(?:{'|'.join(_PACKAGES)})|python3\.\d+(?!/site-packages))/.*|<frozen .*>"
)
# A sentence repeats what the user asked for: the name of a range of theirs, or a line of their
# source.
_STEP_MARK = re.compile(r"(?<=--step-mark ).*(?=: )", re.DOTALL)
_PATH = re.compile(r"(?<![\w.])~?(?:/[^\s/:;,'\"()]+)+/?")
# A command line as one string: the interpreter, its options, then what it runs.
_PYTHON = re.compile(
    r"^(?:.*?/)?(?P<python>python[\d.]*)(?:\s+-(?![mc]\b)\S+)*(?:\s+(?P<how>-m\s+[\w.]+|-c\b|(?:(?!\s-).)*?\.py))?(?=\s|$)",
    re.DOTALL,
)
_SHORTEST_WORD = 4


def redact(run: Run, folder: Path) -> tuple[RunInfo, dict[str, int]]:
    """Write the tables of `run` to `folder` without what identifies; what `run.json` may say, and
    rows by table.
    """
    codes = _Codes(run.info.run_id)
    masked = _mask_of(run)
    by_program = _names_by_program(run)
    changes: dict[str, Callable[[pa.Table], pa.Table]] = {
        "processes": _Processes().change,
        "tracks": lambda data: _named(data, "thread", codes, _KNOWN_TRACK),
        "spans": lambda data: _without(_named_by_program(data, codes), "args"),
        "totals": lambda data: _named_by_program(data, codes),
        "marks": lambda data: _without(_named(data, "mark", codes, _KNOWN_NAME), "args"),
        "counters": lambda data: _named(data, "counter", codes, _KNOWN_COUNTER),
        "args": lambda data: data.slice(0, 0),
        "frames": lambda data: _frames(data, codes, by_program),
        "problems": lambda data: _sentences(data, masked),
    }
    rows = {table: _rewrite(run, table, folder, changes.get(table, _as_it_is)) for table in TABLES}
    return _info(run.info, codes, masked), rows


class _Codes:
    """Codes in place of names. Without the recording's id, which is random, no name can be tried
    out.
    """

    def __init__(self, run_id: str) -> None:
        self._key = run_id.encode()[:64]

    def of(self, what: str, name: str) -> str:
        """The code of `name`: always the same in one recording."""
        content = name.encode()
        digest = hashlib.blake2b(content, key=self._key, digest_size=6)
        return f"{what}-{digest.hexdigest()}"


class _Processes:
    """Changes the table of processes; a host has the same number in every part of it."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}

    def change(self, data: pa.Table) -> pa.Table:
        """The same processes, their hosts numbered, with nothing but the names of their
        programs.
        """
        hosts = [
            self._hosts.setdefault(name, f"host-{len(self._hosts) + 1}")
            for name in data["host"].to_pylist()
        ]
        data = _replaced(data, "host", hosts)
        return _replaced(data, "argv", [program_of(line) for line in data["argv"].to_pylist()])


def program_of(command_line: str) -> str:
    """The name of the program in a command line: `python train.py`, `python -m train`; no folder,
    no argument.
    """
    found = _PYTHON.match(command_line)
    if not found:
        return "(program)"
    how = found["how"] or ""
    if how and not how.startswith("-"):
        how = re.split(r"[\s/]", how)[-1]
    return f"{found['python']} {' '.join(how.split())}".strip()


def _info(info: RunInfo, codes: _Codes, masked: Callable[[str], str]) -> RunInfo:
    host: dict[str, Any] = {}
    for section, names in _HOST_FACTS.items():
        values = {name: info.host_fact(section, name) for name in names}
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            host[section] = known
    release = str(info.host_fact("kernel", "release") or "")
    kernel = re.match(r"\d+(\.\d+)*", release)
    if kernel:
        host["kernel"] = {"release": kernel[0]}
    layers = []
    for layer in info.layers:
        problem = masked(layer.problem)
        layers.append(msgspec.structs.replace(layer, problem=problem))
    return _redacted_info(info, codes, host, layers)


def _redacted_info(
    info: RunInfo, codes: _Codes, host: dict[str, Any], layers: list[LayerState]
) -> RunInfo:
    # Named one by one: a field that is added later is not handed on by accident.
    return RunInfo(
        schema=info.schema,
        layerscope=info.layerscope,
        run_id=codes.of("redacted", "run_id"),
        state=info.state,
        command=program_of(" ".join(info.command)).split(),
        cwd="",
        environment=dict.fromkeys(info.environment, MASK),
        host=host,
        started_utc=info.started_utc,
        start_ns=info.start_ns,
        finished_utc=info.finished_utc,
        exit=info.exit,
        layers=layers,
        weight_policy=info.weight_policy,
        tables=info.tables,
        cost=info.cost,
        program=info.program,
        versions=info.versions,
    )


def _mask_of(run: Run) -> Callable[[str], str]:
    """Takes paths out of a sentence, and every word that the command lines, the environment or the
    host have.
    """
    info = run.info
    texts = [*info.command, info.cwd, str(run.path.absolute()), *info.environment.values()]
    hosts = {str(info.host.get("name", ""))}
    for file in table_files(run, "processes"):
        with reading(run):
            data = pq.ParquetFile(file).read(["host", "argv"])
        texts += data["argv"].to_pylist()
        hosts |= set(data["host"].to_pylist())
    words = sorted({*_words(texts), *_words(hosts)}, key=len, reverse=True)
    # The name of a host may be as short as n1: it is looked for as a whole word.
    patterns = [
        *map(re.escape, words),
        *(rf"(?<!\w){re.escape(host)}(?!\w)" for host in hosts if host),
    ]
    known = re.compile("|".join(patterns) or r"(?!)")

    def masked(sentence: str) -> str:
        sentence = _STEP_MARK.sub(MASK, sentence)
        sentence = _PATH.sub("(path)", sentence)
        return known.sub(MASK, sentence)

    return masked


def _words(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        parts = [text, *re.split(r"[\s/=:,;]+", text)]
        yield from (
            word
            for word in parts
            if len(word) >= _SHORTEST_WORD and not re.fullmatch(r"python[\d.]*", word)
        )


def _rewrite(run: Run, table: str, folder: Path, change: Callable[[pa.Table], pa.Table]) -> int:
    """Write a table of `run`, changed, as finished; row group by row group, so that memory does not
    grow with it.
    """
    schema = arrow_schema(TABLES[table])
    options = parquet_options(TABLES[table])
    del options["row_group_size"]
    target = folder / table / "all.parquet"
    target.parent.mkdir(parents=True)
    rows = 0
    with pq.ParquetWriter(target, schema, **options) as writer:
        for data in _row_groups(run, table):
            stored = data.select(schema.names).cast(schema)
            changed = _with_known_text(table, change(stored))
            writer.write_table(changed)
            rows += changed.num_rows
    return rows


def _row_groups(run: Run, table: str) -> Iterator[pa.Table]:
    """Of several ranks those of all, with keys that are unique over them."""
    names = arrow_schema(TABLES[table]).names
    if run.joined and table == "histograms":  # those of some ranks are made of their spans
        with Reader(run) as reader:
            yield reader.query("SELECT * FROM histograms")
        return
    for part in parts_of(run, table):
        for file in part.files:
            with reading(run):
                parquet = pq.ParquetFile(file)
            for group in range(parquet.num_row_groups):
                with reading(run):
                    data = parquet.read_row_group(group, names)
                    data = in_recording(TABLES[table], data, part.keys)
                yield data


def _with_known_text(table: str, data: pa.Table) -> pa.Table:
    """Nothing in the columns of text that nobody has decided about."""
    for column in TABLES[table].columns:
        name = f"{table}.{column.name}"
        if column.type in ("string", "name") and name not in _KEPT and name not in _CHANGED:
            data = (
                _without(data, column.name)
                if column.nullable
                else _replaced(data, column.name, [""] * len(data))
            )
    return data


def _as_it_is(data: pa.Table) -> pa.Table:
    return data


def _named_by_program(data: pa.Table, codes: _Codes) -> pa.Table:
    """Codes for the names of ranges and their like; other kinds have names of a framework."""
    kinds = data["kind"].cast(pa.string())
    for kind in _NAMED_BY_PROGRAM:
        is_kind = pc.equal(kinds, kind)
        data = _named(data, kind, codes, _KNOWN_NAME, is_kind)
    return data


def _named(
    data: pa.Table, what: str, codes: _Codes, known: re.Pattern[str], where: Any = None
) -> pa.Table:
    """Codes in place of the names that are not `known`, in all rows or `where` it is true."""
    # As plain strings: a dictionary would go on holding the names that no row has any more.
    names = data["name"].cast(pa.string())
    concerned = names if where is None else names.filter(where)
    different = pc.unique(concerned).to_pylist()
    unknown = [name for name in different if not known.fullmatch(name)]
    if not unknown:
        return data
    codes_of_unknown = [codes.of(what, name) for name in unknown]
    places = pc.index_in(names, _strings(unknown))
    coded = pc.take(_strings(codes_of_unknown), places)
    is_changed = pc.is_valid(places)
    if where is not None:
        is_changed = pc.and_(is_changed, where)
    return _replaced(data, "name", pc.if_else(is_changed, coded, names))


def _strings(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _names_by_program(run: Run) -> pa.Array:
    """The names of all ranges and their like."""
    found = {""}
    kinds_by_program = pa.array(_NAMED_BY_PROGRAM)
    for file in table_files(run, "totals"):
        with reading(run):
            data = pq.read_table(file, columns=["kind", "name"])
        kinds = data["kind"].cast(pa.string())
        names = data["name"].cast(pa.string())
        is_one = pc.is_in(kinds, value_set=kinds_by_program)
        found.update(names.filter(is_one).to_pylist())
    return pa.array(sorted(found))


def _frames(data: pa.Table, codes: _Codes, by_program: pa.Array) -> pa.Table:
    """Codes for functions of the program, in Python or not, and for its ranges; objects that
    everybody has by name.
    """
    layer, file, where = (data[name].cast(pa.string()) for name in ("layer", "file", "object"))
    matched = [_KNOWN_OBJECT.fullmatch(path or "") for path in where.to_pylist()]
    known_file = pa.array(
        [bool(_KNOWN_FILE.fullmatch(path or "")) for path in file.to_pylist()], pa.bool_()
    )
    known_object = pa.array([found is not None for found in matched], pa.bool_())
    nobody_s = re.compile(r"\[outer frames not known\]|\[frames left out\]")
    is_jit = pc.and_(pc.equal(layer, "native"), pc.fill_null(pc.equal(where, "[jit]"), False))
    of_program = pc.is_in(data["name"].cast(pa.string()), value_set=by_program)
    data = _named(
        data,
        "range",
        codes,
        _KNOWN_NAME,
        pc.and_(pc.is_in(layer, value_set=_OF_RANGES), of_program),
    )
    data = _named(
        data, "function", codes, nobody_s, pc.and_(pc.equal(layer, "python"), pc.invert(known_file))
    )
    data = _named(
        data,
        "function",
        codes,
        nobody_s,
        pc.and_(pc.equal(layer, "native"), pc.invert(known_object)),
    )
    data = _named(data, "function", codes, _KNOWN_JIT, is_jit)
    data = _without(data, "signature")
    objects = pa.array(
        [(found[1] or found[0]) if found else None for found in matched], pa.string()
    )
    return _replaced(data, "object", objects)


def _sentences(data: pa.Table, masked: Callable[[str], str]) -> pa.Table:
    for name in ("what", "remedy", "lost"):
        column = data[name].to_pylist()
        sentences = [masked(sentence) for sentence in column]
        data = _replaced(data, name, sentences)
    return data


def _without(data: pa.Table, name: str) -> pa.Table:
    """The same without what is in this column."""
    column_type = data.schema.field(name).type
    nothing = pa.nulls(data.num_rows, column_type)
    return _replaced(data, name, nothing)


def _replaced(data: pa.Table, name: str, values: Any) -> pa.Table:
    place = data.schema.get_field_index(name)
    field = data.schema.field(name)
    if isinstance(values, list):
        values = _strings(values)
    wants_dictionary = pa.types.is_dictionary(field.type)
    if wants_dictionary and not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    column = values.cast(field.type)
    return data.set_column(place, field, column)
