"""What is recorded of oneDNN is what oneDNN says: its own verbose log of the same run is the
oracle, line by line.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.quick_torch import quick
from tests.recorded import NO_STACKS, ROOT, Recorded, layerscope
from tests.repeated import also

pytestmark = pytest.mark.slow

CONVOLUTIONS = """
import torch

def train(steps, seed=0):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 3, 16 + step % 3, 16)).sum().backward()
        optimizer.step()
"""
TRANSFORMER = """
import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True)
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(3):
    with torch.autocast("cpu", torch.bfloat16):
        loss = layer(torch.randn(4, 16, 64)).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BACKWARD_ELSEWHERE = (
    CONVOLUTIONS
    + """
import threading

net = torch.nn.Conv2d(3, 16, 3)
for _ in range(3):
    loss = net(torch.randn(4, 3, 16, 16)).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
"""
)
TWO_THREADS = (
    CONVOLUTIONS
    + """
import threading

threads = [threading.Thread(target=train, args=(6, seed)) for seed in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
)
WORKERS = (
    CONVOLUTIONS
    + """
class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.nn.functional.conv2d(torch.ones(2, 3, 16, 16), torch.ones(16, 3, 3, 3)) * index

for batch in torch.utils.data.DataLoader(Images(), batch_size=3, num_workers=2):
    torch.nn.functional.conv2d(batch[0], torch.ones(8, 16, 3, 3))
"""
)
FORKS = (
    CONVOLUTIONS
    + """
import os

train(2)
pid = os.fork()
train(3)
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
"""
)


def record_with_log(
    python: str,
    program: str,
    cwd: Path,
    *arguments: str,
    options: Sequence[str] = NO_STACKS,
    **variables: str,
) -> tuple[Recorded, Counter[tuple[str, str]]]:
    """The recording of a program, and how often its own log has each operation and text."""
    path = Path(program)
    if "\n" in program:
        path = cwd / "program.py"
        path.write_text(quick(program))
    environment = {"ONEDNN_VERBOSE": "2", **variables}
    command = ["--", python, str(path), *arguments]
    done = layerscope("run", "-o", "recording", *options, *command, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    ), said(done.stdout)


def said(log: str) -> Counter[tuple[str, str]]:
    """The executions and creations in a log of version v1:
    onednn_verbose,v1,primitive,exec,TEXT,TIME.
    """
    found: Counter[tuple[str, str]] = Counter()
    for line in log.splitlines():
        _, marker, rest = line.partition("onednn_verbose,")
        words = rest.split(",")
        operation = (
            {"exec": "execute", "create": "create"}.get(words[2].partition(":")[0])
            if len(words) > 9
            else None
        )
        if marker and operation and words[1] == "primitive":
            found[operation, ",".join(words[3:-1])] += 1
    return found


def recorded(run: Recorded) -> Counter[tuple[str, str]]:
    """The same as it was recorded; shares of other threads are no executions."""
    rows = run.rows(
        "SELECT kind, json->>'call' AS call, count(*) AS n FROM spans LEFT JOIN args USING (args) "
        "WHERE layer = 'primitives' AND kind <> 'share' GROUP BY ALL"
    )
    return Counter({(row["kind"], row["call"]): row["n"] for row in rows})


def assert_within_operators(run: Recorded) -> None:
    """No primitive lies outside of its operator or takes longer, one by one and all together."""
    outside = run.rows(
        "SELECT o.name AS operator, p.name AS primitive FROM primitives JOIN spans p USING (span) "
        "JOIN spans o ON o.span = primitives.operator WHERE p.track <> o.track OR p.start_ns < o.start_ns "
        "OR p.start_ns + p.dur_ns > o.start_ns + o.dur_ns"
    )
    longer = run.rows(
        "SELECT o.span FROM primitives JOIN spans p USING (span) JOIN spans o ON o.span = primitives.operator "
        "WHERE p.parent = o.span GROUP BY o.span, o.dur_ns HAVING sum(p.dur_ns) > o.dur_ns"
    )
    assert not outside
    assert not longer


def assert_agrees(run: Recorded, log: Counter[tuple[str, str]], kinds: set[str]) -> None:
    """What was recorded is what the log says, every call has its operator, and there is something
    of these `kinds`.
    """
    assert {text.split(",")[1] for _, text in log} >= kinds
    assert recorded(run) == log
    nobodys = "SELECT count(*) FROM primitives JOIN spans USING (span) WHERE kind <> 'share' AND operator IS NULL"
    assert not run.value(nobodys)
    assert_within_operators(run)


def test_every_convolution_of_the_example_shows_its_primitives(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    examples, data = ROOT / "examples", str(tmp_path / "digits")
    drawn = [
        program_python,
        str(examples / "make_digits.py"),
        "--data",
        data,
        "--train",
        "1280",
        "--test",
        "64",
    ]
    subprocess.run(drawn, check=True, capture_output=True, timeout=120)
    words = ["--data", data, "--epochs", "1", "--limit", "20", "--threads", "2"]
    program = str(examples / "mnist_cnn.py")
    run, log = record_with_log(program_python, program, tmp_path, *words, options=())
    assert_agrees(run, log, {"convolution", "reorder"})
    bare = run.rows(
        "SELECT o.name FROM spans o LEFT JOIN primitives p ON p.operator = o.span AND p.primitive_kind = 'convolution' "
        "WHERE o.name IN ('aten::mkldnn_convolution', 'aten::convolution_backward') "
        "GROUP BY o.span, o.name HAVING count(p.implementation) = 0 OR count(p.problem) = 0"
    )
    assert not bare
    assert run.value("SELECT count(*) FROM primitives WHERE problem LIKE 'mb64\\_%' ESCAPE '\\'")
    assert run.value(
        "SELECT count(*) FROM primitives WHERE primitive_kind = 'convolution' AND flop > 0"
    )


@pytest.mark.parametrize("threads", ["2", *also(["1"])])
def test_a_transformer_in_bfloat16_agrees_with_its_log(
    native_agent: Path, program_python: str, tmp_path: Path, threads: str
) -> None:
    if "avx512bw" not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip("PyTorch gives matrix products in bfloat16 to oneDNN with AVX-512 only")
    run, log = record_with_log(program_python, TRANSFORMER, tmp_path, OMP_NUM_THREADS=threads)
    assert_agrees(run, log, {"matmul"})


@pytest.mark.parametrize(
    ("program", "tracks"),
    [(BACKWARD_ELSEWHERE, 4), (TWO_THREADS, 2)],
    ids=["backward on threads", "two threads"],
)
def test_primitives_of_several_threads_agree_with_the_log(
    native_agent: Path, program_python: str, tmp_path: Path, program: str, tracks: int
) -> None:
    run, log = record_with_log(program_python, program, tmp_path, OMP_NUM_THREADS="2")
    assert_agrees(run, log, {"convolution", "reorder"})
    asked = "SELECT count(DISTINCT track) FROM primitives JOIN spans USING (span) WHERE operator IS NOT NULL"
    assert run.value(asked) == tracks


def test_primitives_of_loader_workers_are_theirs(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run, log = record_with_log(program_python, WORKERS, tmp_path)
    assert_agrees(run, log, {"convolution"})
    rows = run.rows(
        "SELECT process, count(*) FILTER (spans.kind = 'execute' AND primitive_kind = 'convolution') AS n "
        "FROM primitives JOIN spans USING (span) JOIN tracks USING (track) GROUP BY process ORDER BY process"
    )
    assert sorted(row["n"] for row in rows) == [4, 6, 6]


def test_a_fork_has_its_own_primitives(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run, log = record_with_log(program_python, FORKS, tmp_path, OMP_NUM_THREADS="1")
    assert_agrees(run, log, {"convolution"})
    rows = run.rows(
        "SELECT process, count(*) AS n FROM primitives JOIN spans USING (span) JOIN tracks USING (track) "
        "GROUP BY process ORDER BY n"
    )
    assert len(rows) == 2
    assert rows[0]["n"] < rows[1]["n"]


def test_where_oneDNN_tells_nothing_nothing_is_recorded(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run, log = record_with_log(
        program_python, CONVOLUTIONS + "train(2)\n", tmp_path, ONEDNN_ITT_TASK_LEVEL="0"
    )
    assert log
    assert not run.value("SELECT count(*) FROM primitives")
