"""Every file of the corpus opens, by the reader that should take it, or is refused with the right
sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope import sources
from layerscope.ingest.foreign import beginning
from layerscope.sources import refused
from tests.corpus import corpus

# By folder, what its files are; the longest folder counts.
READERS = {
    "chrome": "chrome",
    "kineto": "kineto",
    "kineto_ranks": "kineto",
    "tb_plugin_resnet50": "kineto",
    "memory": "memory_timeline",
    "mxnet": "mxnet_trace",
    "nsys": "nsys",
    "nvprof": "nvprof",
    "onednn": "onednn_verbose",
    "perf": "perf_data",
    "perf_script": "perf_script",
    "perf_script/folded": "folded",
    "rocprof": "rocprof",
    "xplane": "xplane",
}
# Text of the same tool that is something else.
CALLS = "perf_script/perf_script_output__"
# What is said of those that are refused; "": that no format is known of them.
REFUSED = {
    "kineto/hta/execution_trace/benchmark_simple_add_et.json.gz": "execution trace of PyTorch",
    "kineto/param/linear_et.json.gz": "execution trace of PyTorch",
    "kineto/tracelens/inference/sglang_decode/capture_traces/execution_details.json": "",
    "kineto/tracelens/inference/vllm_decode_full/capture_traces/execution_details.json": "",
    "kineto_ranks/dlrm_pytorch_et.tar.gz": "is an archive: unpack it",
    "onednn/itt/mxnet-1.9.1.itt.tsv": "",
    "onednn/itt/tf-2.21.0.itt.tsv": "",
    "onednn/itt/torch-2.13.0.cnn.itt.tsv": "",
    "onednn/itt/torch-2.13.0.emit_itt.itt.tsv": "",
    "onednn/torch-2.13.0.cnn_bf16.maxisa_avx2.log": "set ONEDNN_VERBOSE=1",
    "onednn/torch-2.13.0.mlp_bf16.dispatch.log": "set ONEDNN_VERBOSE=1",
}
NO_INPUT = ("golden", "LICENSES")


def inputs(folder: Path) -> list[str]:
    """The files that a user may have, by their place in the corpus."""
    found = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_file() and len(place.parts) > 1 and place.parts[0] not in NO_INPUT:
            found.append(str(place))
    return found


def reader_of(place: str) -> str:
    if place.startswith(CALLS):
        return "perf_calls"
    folders = [name for name in READERS if place.startswith(f"{name}/")]
    return READERS[max(folders, key=len)]


@pytest.mark.slow
def test_every_file_of_the_corpus_opens_or_is_refused_with_the_right_sentence() -> None:
    folder = corpus("")
    places = inputs(folder)
    empty = []
    for place in places:
        path = folder / place
        head = beginning(path)
        known = [one for one in sources.known() if one.recognises(head)]
        names = [one.__name__.rpartition(".")[2] for one in known]  # type: ignore[attr-defined]
        if place in REFUSED:
            assert not names, place
            assert REFUSED[place] in (refused.sentence(head, path.name) or ""), place
            continue
        assert names == [reader_of(place)], place
        found = known[0].read(path)
        has_samples = found.stacks is not None and len(found.stacks.samples["at_ns"])
        is_empty = not (len(found.start_ns) or len(found.moments.at_ns) or has_samples)
        if is_empty and not (len(found.memory) or found.problems):
            empty.append(place)
    assert not empty
    assert len(places) == 159
