"""Logs of oneDNN's and MKL's verbose modes: every version, and everything that happens to such a
log.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.model.layers import KINDS
from layerscope.sources import known, onednn_verbose
from layerscope.sources.imported import Imported

# A line of each version, its operation, its name and its milliseconds.
LINES = {
    "0.17": "mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,32x16x3x3,0.25",
    "1.0": "mkldnn_verbose,exec,cpu,eltwise,jit:avx512_common,forward_training,data_f32::blocked:ab:f0 "
    "diff_undef::undef::f0,alg:eltwise_relu:0:0,8x16,0.25",
    "1.3": "dnnl_verbose,exec,cpu,matmul,brg,undef,src_f32::blocked:ab:f0 wei_f32::blocked:ba:f0 "
    "dst_f32::blocked:ab:f0,scratchpad_mode:user;post_ops:'eltwise_relu;';,,64x128:128x32:64x32,0.25",
    "2.6 with times": "onednn_verbose,1795153485335.777100,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:abcd:f0 "
    "dst_f32::blocked:acdb:f0,,,2x16x14x14,0.25",
    "2.7 gemm_api": "onednn_verbose,exec,cpu,gemm_api,,undef,src_f32::blocked:ab:f0 wei_f32::blocked:ba:f0 "
    "dst_f32::blocked:ab:f0,lda:96 ,64x64:64x32,0.25",
    "3.4": "onednn_verbose,primitive,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:abcd::f0 "
    "dst_f32::blocked:acdb::f0,,,2x16x14x14,0.25",
    "3.12": "onednn_verbose,v1,1795153485335.777100,primitive,exec,cpu,gemm_api,,undef,src_s8::blocked:ab:f0 "
    "wei_s8::blocked:ab:f0 dst_s32::blocked:ab:f0,,,64x64:64x64,0.25",
    "3.12 as its template says": "onednn_verbose,v1,primitive,1795153485335.777100,exec,cpu,reorder,jit:blk,undef,"
    "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x16,0.25",
    "ukernel": "onednn_verbose,v1,ukernel,exec,cpu,brgemm,jit:avx512,undef,src:f32::blocked:ab::f0,,,8x8,0.25",
    "a gpu": "onednn_verbose,v1,primitive,exec,gpu:1,matmul,jit:gemm:any,undef,src:f32::blocked:ab::f0 "
    "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x8:8x8,0.25",
    "a graph": "onednn_verbose,v1,graph,exec,cpu,100,matmul_post_ops,aten::linear,,in0_f32:0:strided:variable:8x8:8s1,"
    "fpm:strict,matmul_t,dnnl_backend,0.25",
    "a graph of 3.13": "onednn_verbose,v1,graph,exec,cpu,100,matmul_post_ops,aten::linear,,"
    "in0_f32:0:strided:variable:8x8:8s1,fpm:strict,4096,matmul_t,dnnl_backend,0.25",
    "MKL": "MKL_VERBOSE SGEMM(T,N,128,32,128,0x7f,0x55,128,0x56,128,0x7e,0x57,128) 250.00us CNR:OFF Dyn:1 "
    "FastMM:1 TID:0",
}
CREATE = (
    "onednn_verbose,v1,primitive,create{how},cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 "
    "dst:f32::blocked:ba::f0,,,8x8,{ms}"
)
TIMED = LINES["3.12"].replace("1795153485335.777100", "{at_ms:.6f}").replace(",0.25", ",{ms:.6g}")
HEADER = (
    "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd)\nonednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2\n"
    "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost, and more\n"
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,exec_time\n"
)


def read(tmp_path: Path, content: str | bytes) -> Imported:
    path = tmp_path / "program.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return onednn_verbose.read(path)


def codes(found: Imported) -> list[str]:
    return [problem.code for problem in found.problems]


@pytest.mark.parametrize("version", LINES)
@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
@pytest.mark.parametrize(
    "before", ["", "Epoch 1:  40%|####      | 12/30 [00:01<00:02]", "\x1b[2K\r"]
)
def test_a_line_of_any_version_is_one_call(
    tmp_path: Path, version: str, ending: str, before: str
) -> None:
    found = read(tmp_path, f"started\n{before}{LINES[version]}{ending}")
    assert found.dur_ns.tolist() == [250_000]
    assert [KINDS[kind] for kind in found.kind] == ["execute"]
    assert "lines_rejected" not in codes(found)
    told = json.loads(found.args_texts[found.args[0]])
    if version == "MKL":
        assert told == {"library": "MKL", "call": "SGEMM(T,N,128,32,128,128,128,128)"}
    else:
        start = LINES[version].index("exec,") + len("exec,")
        assert told == {"library": "oneDNN", "call": LINES[version][start:].removesuffix(",0.25")}
        assert found.names[found.name[0]] in told["call"].split(",")[:3]


def test_creations_tell_whether_the_cache_had_them(tmp_path: Path) -> None:
    hows = {"": None, ":cache_hit": "hit", ":cache_miss": "miss", ":persistent_cache_hit": "hit"}
    found = read(tmp_path, "".join(CREATE.format(how=how, ms=1) + "\n" for how in hows))
    assert [KINDS[kind] for kind in found.kind] == ["create"] * 4
    told = [json.loads(found.args_texts[args]).get("cache") for args in found.args.tolist()]
    assert told == list(hows.values())


def test_without_times_calls_lie_end_to_end_and_it_is_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "\n".join([CREATE.format(how="", ms=2), LINES["3.4"], CREATE.format(how="", ms="1e-05")]),
    )
    assert found.start_ns.tolist() == [0, 2_000_000, 2_250_000]
    assert found.dur_ns.tolist() == [2_000_000, 250_000, 10]
    assert found.realtime_ns is None
    assert codes(found) == ["no_times"]


def test_times_are_kept_and_what_has_none_follows_the_call_before_it(tmp_path: Path) -> None:
    at_ms = 1795153485335.0
    lines = [TIMED.format(at_ms=at_ms, ms=1), LINES["MKL"], TIMED.format(at_ms=at_ms + 10, ms=2)]
    found = read(tmp_path, "\n".join(lines))
    assert found.start_ns.tolist() == [0, 1_000_000, 10_000_000]
    assert found.realtime_ns == 1795153485335 * 10**6
    assert "1 of 3 calls" in found.problems[0].what
    found = read(tmp_path, "\n".join([LINES["MKL"], *lines]))
    assert found.start_ns.tolist() == [0, 250_000, 1_250_000, 10_250_000]


def test_partitions_of_graphs_hold_their_primitives(tmp_path: Path) -> None:
    graph = LINES["a graph"].replace(",0.25", ",4")
    found = read(
        tmp_path,
        "\n".join([LINES["3.4"].replace(",0.25", ",9"), LINES["3.4"], LINES["3.4"], graph]),
    )
    assert found.start_ns.tolist() == [0, 9_000_000, 9_250_000, 9_000_000]
    assert found.depth.tolist() == [0, 1, 1, 0]
    assert [track.name for track in found.tracks] == ["calls"]


def test_calls_at_the_same_time_lie_on_tracks_beside_each_other(tmp_path: Path) -> None:
    lines = [
        TIMED.format(at_ms=1e12 + at_ms, ms=ms)
        for at_ms, ms in ((0, 10), (5, 10), (12, 2), (16, 1))
    ]
    found = read(tmp_path, "\n".join(lines))
    assert found.track.tolist() == [0, 1, 0, 0]
    assert not found.depth.any()
    # What only touches is one after the other: times have microseconds.
    found = read(
        tmp_path, "\n".join(TIMED.format(at_ms=1e12 + at_ms, ms=1.001) for at_ms in (0, 1, 2))
    )
    assert found.track.tolist() == [0, 0, 0]


@pytest.mark.parametrize("ms", ["1000000000", "99999999999999", "1e300"])
def test_a_duration_of_days_is_none(ms: str, tmp_path: Path) -> None:
    lines = [
        LINES["3.4"],
        LINES["3.4"].replace(",0.25", f",{ms}"),
        LINES["3.4"],
        "MKL_VERBOSE DGEMM(N,N,1,1,1) 9999999s",
    ]
    found = read(tmp_path, "\n".join(lines))
    assert found.dur_ns.tolist() == [250_000] * 2
    assert found.problems[-1].what.startswith("2 lines have a marker")


def test_creations_hold_shorter_ones_that_begin_with_them(tmp_path: Path) -> None:
    """Their lines come when they are done, the inner one's first; times have microseconds."""
    line = TIMED.replace("exec", "create:cache_miss")
    lines = [line.format(at_ms=1e12, ms=ms) for ms in (0.001, 0.2, 0.5, 1)]
    found = read(tmp_path, "\n".join(lines))
    assert found.track.tolist() == [0, 0, 0, 0]
    assert found.depth.tolist() == [0, 2, 1, 0]  # the first one is too short to tell


def test_threads_of_mkl_are_tracks(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LINES['MKL']}\n{LINES['MKL'].replace('TID:0', 'TID:3')}\n")
    assert [track.name for track in found.tracks] == ["calls", "MKL thread 3"]
    assert found.track.tolist() == [0, 1]


@pytest.mark.parametrize(
    "label",
    [
        "[rank{}]: ",
        "[default{}]:",
        "[1,{}]<stdout>:",
        "{}: ",
        "worker-{}  | ",
        "(Worker pid={}, ip=10.0.0.1) ",
    ],
)
def test_labels_of_launchers_tell_processes_apart(tmp_path: Path, label: str) -> None:
    ranks = [0, 1, 0, 1, 1]
    found = read(tmp_path, "".join(label.format(rank) + LINES["3.4"] + "\n" for rank in ranks))
    assert [found.tracks[track].process for track in found.track] == ranks
    assert len(found.processes) == 2
    assert [process.rank for process in found.processes] == (
        [None] * 2 if label[0] in "w(" else [0, 1]
    )


def test_the_header_says_what_ran(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER + LINES["3.4"])
    assert found.versions == {"oneDNN": "v3.12.0"}
    assert found.environment == {
        "isa": "Intel AVX-512 with Intel DL Boost, and more", "runtime": "OpenMP", "threads": "2",
    }  # fmt: skip
    old = "mkldnn_verbose,info,Intel(R) MKL-DNN v0.19.0 (Git Hash 41bee20d),Intel(R) AVX512 (AVX512-DL Boost)\n"
    found = read(tmp_path, old + LINES["0.17"])
    assert (found.versions, found.environment) == (
        {"oneDNN": "v0.19.0"},
        {"isa": "Intel(R) AVX512 (AVX512-DL Boost)"},
    )


def test_several_processes_without_labels_are_said(tmp_path: Path) -> None:
    assert "processes_mixed" in codes(read(tmp_path, HEADER + HEADER + LINES["3.4"]))
    assert "processes_mixed" not in codes(read(tmp_path, HEADER + LINES["3.4"]))


def test_messages_are_no_calls_and_no_faults(tmp_path: Path) -> None:
    messages = [
        "onednn_verbose,v1,primitive,create:dispatch,matmul,cpu,matmul,brg,undef,src_u8,,,8x8,unsupported isa,m.cpp:97",
        "onednn_verbose,v1,primitive,exec:check,primitive,unused primitive execution argument (80),args.cpp:136",
        "onednn_verbose,v1,primitive,error,cpu,out of memory,x.cpp:1",
        "onednn_verbose,v1,common,info,filter format is enabled, hit components: primitive,graph",
    ]
    found = read(tmp_path, "\n".join([*messages, LINES["3.4"]]))
    assert (len(found.kind), codes(found)) == (1, ["no_times"])


@pytest.mark.parametrize(
    "broken",
    [
        LINES["3.4"].removesuffix(",0.25"),
        LINES["3.4"].replace(",0.25", ",soon"),
        LINES["3.4"].replace(",0.25", ",nan"),
        LINES["3.4"].replace(",0.25", ",-1"),
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,",
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:a::f0,,,16",
        "onednn_verbose,",
        "onednn_verbose,v1,primitive,juggle,cpu,reorder,jit:uni,undef,src,,,8x8,0.25",
        LINES["3.12"].removesuffix("x64:64x64,0.25"),
        "MKL_VERBOSE SGEMM(T,N,128",
    ],
)
def test_a_line_that_is_not_understood_is_counted_and_shown(tmp_path: Path, broken: str) -> None:
    found = read(tmp_path, "\n".join([LINES["3.4"], broken, LINES["3.4"], broken, ""]))
    assert found.dur_ns.tolist() == [250_000] * 2
    problem = next(problem for problem in found.problems if problem.code == "lines_rejected")
    assert problem.what.startswith("2 lines have")
    assert problem.what.endswith(broken)


def test_a_line_that_another_process_cut_into_does_not_take_it_along(tmp_path: Path) -> None:
    found = read(tmp_path, LINES["3.4"][:50] + LINES["3.12"] + "\n" + LINES["3.4"])
    assert len(found.kind) == 2
    assert "lines_rejected" in codes(found)


def test_a_packed_log_is_read_up_to_where_it_was_cut(tmp_path: Path) -> None:
    whole = gzip.compress(
        "".join(CREATE.format(how="", ms=number) + "\n" for number in range(1, 5000)).encode()
    )
    assert len(read(tmp_path, whole).kind) == 4999
    assert 0 < len(read(tmp_path, whole[: len(whole) // 2]).kind) < 4999


def test_chunks_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = HEADER + "\n".join([*LINES.values(), "no marker"] * 3)
    whole = read(tmp_path, content)
    for size in (1, 97, 1000):
        monkeypatch.setattr(onednn_verbose, "CHUNK_BYTES", size)
        parts = read(tmp_path, content)
        assert parts.dur_ns.tolist() == whole.dur_ns.tolist()
        assert [parts.args_texts[at] for at in parts.args] == [
            whole.args_texts[at] for at in whole.args
        ]
        assert parts.start_ns.tolist() == whole.start_ns.tolist()


@settings(max_examples=60)
@given(
    cut=st.integers(0, 2000),
    pieces=st.lists(st.sampled_from([*LINES.values(), "progress"]), max_size=6),
)
def test_a_cut_loses_at_most_the_cut_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int, pieces: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    content = "".join(f"{piece}\n" for piece in pieces)[:cut]
    whole_lines = sum("verbose" in line.lower() for line in content.split("\n")[:-1])
    assert whole_lines <= len(read(folder, content).kind) <= whole_lines + 1


@settings(max_examples=150)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [
                b"onednn_verbose,",
                b"MKL_VERBOSE ",
                b"\n",
                b"exec,cpu,",
                b",,,,,,,",
                b"v1,",
                b"\xff",
                b"1.5",
            ]
        )
    )
)
def test_any_bytes_are_taken(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    found = read(tmp_path_factory.mktemp("any"), b"".join(pieces))
    assert len(found.start_ns) == len(found.args) == len(found.kind)
    assert (found.start_ns >= 0).all()
    assert (found.dur_ns >= 0).all()


PROGRAM = """
import torch
convolution = torch.nn.Conv2d(16, 16, 3)
x = torch.randn(4, 16, 32, 32)
with torch.no_grad(), torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
    for _ in range(5):
        convolution(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("timestamps", ["0", "1"])
def test_counts_of_a_real_log_are_what_the_program_did(
    tmp_path: Path, program_python: str, timestamps: str
) -> None:
    log = tmp_path / "real.log"
    environment = {**os.environ, "ONEDNN_VERBOSE_TIMESTAMP": timestamps, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as file:
        subprocess.run(
            [program_python, "-c", PROGRAM], stdout=file, check=True, env=environment, timeout=300
        )
    found = onednn_verbose.read(log)
    done = Counter(
        (KINDS[kind], found.names[name]) for kind, name in zip(found.kind, found.name, strict=True)
    )
    assert done["execute", "convolution"] == done["create", "convolution"] == 5
    lines = [
        line for line in log.read_text().splitlines() if ",exec," in line or ",create:" in line
    ]
    assert done.total() == len(lines)
    assert codes(found) == ([] if timestamps == "1" else ["no_times"])
    total_ns = sum(float(line.rpartition(",")[2]) for line in lines) * 1e6
    assert abs(int(found.dur_ns.sum()) - total_ns) <= len(lines)  # each is rounded to whole ns


def test_every_log_of_the_corpus_is_understood() -> None:
    corpus = os.environ.get("LAYERSCOPE_CORPUS", "")
    logs = sorted(Path(corpus).glob("onednn/*.log*")) if corpus else []
    if not logs:
        pytest.skip("LAYERSCOPE_CORPUS names no folder with logs of oneDNN")
    for log in logs:
        found = onednn_verbose.read(log)
        assert "lines_rejected" not in codes(found), log
        content = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
        lines = [
            line for line in content.split(b"\n") if b"_verbose," in line and b",info," not in line
        ]
        timed = [line for line in lines if b":dispatch," not in line and b":check," not in line]
        calls = content.count(b"MKL_VERBOSE ") - content.count(b"MKL_VERBOSE oneMKL")
        assert len(found.kind) == len(timed) + calls, log
        assert np.isin(found.kind, [KINDS.index("execute"), KINDS.index("create")]).all()


def test_the_format_is_found_by_its_folder() -> None:
    assert onednn_verbose in known()
    assert not onednn_verbose.recognises(b"PK\x03\x04 or some text")
