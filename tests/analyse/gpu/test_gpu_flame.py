"""`flame --kind gpu`: what GPUs executed, below the operators that asked for it."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse.stacks import graphs
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording


def stacks(reader: Reader) -> dict[str, int]:
    """The frames from the outermost to each that has time of its own, with it in microseconds."""
    graph = graphs.build(reader, graphs.Look("gpu"))
    tree, names = graph.tree, [frame.name for frame in graph.frames]
    found = {}
    for node in range(len(tree)):
        words, at = [], node
        while at >= 0:
            words.append(names[tree.frame[at]])
            at = int(tree.parent[at])
        if tree.own[node, 0]:
            found[" > ".join(reversed(words))] = int(tree.own[node, 0]) // US
    return found


def test_kernels_lie_below_what_asked_for_them(tmp_path: Path) -> None:
    """Whatever step that was in; work that nobody asked for stands by itself."""
    gpu = GpuRecording()
    add = gpu.recording.add_span
    for step in range(2):
        at = 100 * step * US
        whole = add(f"ProfilerStep#{step}", at, 90 * US, kind="range")
        forward = add("forward", at, 50 * US, whole, layer="python", kind="call")
        linear = add("aten::linear", at, 20 * US, forward)
        addmm = add("aten::addmm", at + US, 10 * US, linear)
        gpu.work(100 * step + 60, 7, "gemm", operator=addmm)
    call = gpu.call("cudaLaunchKernel", 300, 2)
    gpu.work(310, 3, "copy", launched_by=call)
    gpu.work(320, 4, "of nobody")

    with gpu.reader(tmp_path) as reader:
        found = stacks(reader)

    assert found == {
        "forward > aten::linear > aten::addmm > gemm": 14,
        "cudaLaunchKernel > copy": 3,
        "of nobody": 4,
    }
