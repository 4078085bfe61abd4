"""`onednn_problem` and `mkl_call`: one text of any version, taken apart; figures worked out by
hand.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.sources.onednn_problem import OnednnProblem, name_of, parse

CONVOLUTION = (
    "cpu,convolution,jit:avx512_core,{prop},src:f32:a:blocked:abcd::f0 wei:f32:a:blocked:Acdb16a::f0 "
    "bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user attr-post-ops:eltwise_relu,"
    "alg:convolution_direct,mb8_ic3oc32_ih32oh16kh3sh2dh0ph1_iw32ow16kw3sw2dw0pw1"
)


def test_every_column_of_today_is_a_field() -> None:
    assert parse(CONVOLUTION.format(prop="forward_training")) == OnednnProblem(
        library="oneDNN",
        engine="cpu",
        primitive_kind="convolution",
        implementation="jit:avx512_core",
        prop_kind="forward_training",
        dtype="f32",
        formats="src:abcd wei:Acdb16a dst:aBcd16b",
        attributes="attr-scratchpad:user attr-post-ops:eltwise_relu",
        algorithm="alg:convolution_direct",
        problem="mb8_ic3oc32_ih32oh16kh3sh2dh0ph1_iw32ow16kw3sw2dw0pw1",
        flop=2 * 8 * 32 * 3 * 9 * 16 * 16,
        bytes=4 * (8 * 3 * 32 * 32 + 32 * 3 * 9 + 32 + 8 * 32 * 16 * 16),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "convolution,jit:avx512_common,backward_data,fsrc:nChw16c fwei:OIhw16o16i fbia:undef fdst:nChw16c,"
            "alg:convolution_direct,mb8_g2ic16oc32_ih16oh16kh3sh1dh0ph1_iw16ow16kw3sw1dw0pw1",
            OnednnProblem("oneDNN", "", "convolution", "jit:avx512_common", "backward_data", "",
                    "src:nChw16c wei:OIhw16o16i dst:nChw16c", "", "alg:convolution_direct",
                    "mb8_g2ic16oc32_ih16oh16kh3sh1dh0ph1_iw16ow16kw3sw1dw0pw1", 2 * 8 * 32 * 8 * 9 * 256, None),
            id="0.x has no engine, no attributes and no types; half the products in two groups",
        ),
        pytest.param(
            "reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,32x16x3x3",
            OnednnProblem("oneDNN", "", "reorder", "jit:uni", "undef", "f32", "oihw -> Ohwi16o", "", "num:1", "32x16x3x3",
                    None, 2 * 4 * 32 * 16 * 9),
            id="a reorder of 0.x",
        ),
        pytest.param(
            "cpu,eltwise,jit:avx512_common,backward_data,data_f32::blocked:aBcd16b:f0 diff_f32::blocked:aBcd16b:f0,"
            "alg:eltwise_relu:0:0,8x16x32x32",
            OnednnProblem("oneDNN", "cpu", "eltwise", "jit:avx512_common", "backward_data", "f32",
                    "data:aBcd16b diff:aBcd16b", "", "alg:eltwise_relu:0:0", "8x16x32x32", None,
                    3 * 4 * 8 * 16 * 32 * 32),
            id="1.0 has an engine and no attributes",
        ),
        pytest.param(
            "cpu,matmul,brg:avx512_core,undef,src_u8::blocked:ab:f0 wei_s8::blocked:ba:f0 dst_f32::blocked:ab:f0,,,"
            "64x128:128x32:64x32",
            OnednnProblem("oneDNN", "cpu", "matmul", "brg:avx512_core", "undef", "u8s8f32", "src:ab wei:ba dst:ab", "", "",
                    "64x128:128x32:64x32", 2 * 64 * 128 * 32, 64 * 128 + 128 * 32 + 4 * 64 * 32),
            id="types that differ stand one after the other",
        ),
        pytest.param(
            "gpu:1,matmul,jit:gemm:any,undef,src:bf16::blocked:abc::f0 wei:bf16::blocked:abc::f0 "
            "bia:f32::blocked:abc::f0_mask4 dst:bf16::blocked:abc::f0,,,4x64x128:1x128x32",
            OnednnProblem("oneDNN", "gpu:1", "matmul", "jit:gemm:any", "undef", "bf16", "src:abc wei:abc dst:abc", "", "",
                    "4x64x128:1x128x32", 2 * 4 * 64 * 128 * 32, 2 * (4 * 64 * 128 + 128 * 32 + 4 * 64 * 32) + 4 * 32),
            id="a batch, its weights for all of it",
        ),
        pytest.param(
            "cpu,deconvolution,conv:any,forward_training,src:f32:a:blocked:abcd::f0 wei:f32:a:blocked:abcd::f0 "
            "bia:undef::undef::: dst:f32:a:blocked:abcd::f0,,alg:deconvolution_direct,"
            "mb4_ic16oc8_ih32oh34kh3sh1dh0ph0_iw32ow34kw3sw1dw0pw0",
            OnednnProblem("oneDNN", "cpu", "deconvolution", "conv:any", "forward_training", "f32",
                    "src:abcd wei:abcd dst:abcd", "", "alg:deconvolution_direct",
                    "mb4_ic16oc8_ih32oh34kh3sh1dh0ph0_iw32ow34kw3sw1dw0pw0", 2 * 4 * 16 * 8 * 9 * 32 * 32,
                    4 * (4 * 16 * 32 * 32 + 16 * 8 * 9 + 4 * 8 * 34 * 34)),
            id="a deconvolution multiplies for each position of its input",
        ),
        pytest.param(
            "cpu,inner_product,gemm:jit,backward_weights,src_f32::blocked:ab:f0 wei_f32::blocked:ab:f0 "
            "bia_f32::blocked:a:f0 dst_f32::blocked:ab:f0,,,mb8ic32oc10",
            OnednnProblem("oneDNN", "cpu", "inner_product", "gemm:jit", "backward_weights", "f32", "src:ab wei:ab dst:ab",
                    "", "", "mb8ic32oc10", 2 * 8 * 32 * 10, 4 * (8 * 32 + 32 * 10 + 10 + 8 * 10)),
            id="backward by weights is as much as forward",
        ),
        pytest.param(
            "cpu,rnn,brgemm:avx512_core,backward,src_layer:f32::blocked:abc::f0 wei_layer:f32:a:blocked:ab::f0 "
            "dst_layer:f32::blocked:abc::f0,attr-scratchpad:user,"
            "alg:vanilla_lstm direction:bidirectional_concat activation:undef flags:,l2t5mb3sic7slc11dhc7dic7",
            OnednnProblem("oneDNN", "cpu", "rnn", "brgemm:avx512_core", "backward", "f32",
                    "src_layer:abc wei_layer:ab dst_layer:abc", "attr-scratchpad:user",
                    "alg:vanilla_lstm direction:bidirectional_concat activation:undef flags:",
                    "l2t5mb3sic7slc11dhc7dic7", 2 * 2 * (2 * 2 * 5 * 3) * (4 * 7 * (7 + 11)), None),
            id="both directions of an LSTM with four gates, by data and by weights",
        ),
        pytest.param(
            "cpu,gemm_api,,undef,src_f32::blocked:ab:f0 wei_f32::blocked:ba:f0 dst_f32::blocked:ab:f0,lda:96 ,"
            "16x64:64x32",
            OnednnProblem("oneDNN", "cpu", "gemm_api", "", "undef", "f32", "src:ab wei:ba dst:ab", "lda:96", "",
                    "16x64:64x32", 2 * 16 * 64 * 32, 4 * (16 * 64 + 64 * 32 + 16 * 32)),
            id="gemm_api of 2.7 has attributes and nothing auxiliary",
        ),
        pytest.param(
            "cpu,100031,convolution_post_ops,aten::_convolution;aten::relu,data:NCX; filter:OIX;;,"
            "in0_f32:0:strided:variable:8x3x32x32:3072s1024s32s1 in1_f32:1:strided:constant:32x3x3x3:27s9s3s1,"
            "fpm:strict,4096,conv_fwd_t,dnnl_backend",
            OnednnProblem("oneDNN", "cpu", "convolution_post_ops", "conv_fwd_t", "", "f32", "data:NCX; filter:OIX;;",
                    "fpm:strict", "aten::_convolution;aten::relu", "in0:8x3x32x32 in1:32x3x3x3"),
            id="a partition of a graph",
        ),
    ],
)  # fmt: skip
def test_texts_of_other_versions(text: str, expected: OnednnProblem) -> None:
    assert parse(text) == expected


F32 = "f32::blocked:abcd::f0"


@pytest.mark.parametrize(
    ("text", "flop", "size"),
    [
        pytest.param(f"cpu,binary,jit:uni,undef,src:{F32} src:{F32} dst:{F32},,alg:binary_mul,8x16x4x4:1x16x1x1",
                     8 * 16 * 16, 4 * (2 * 8 * 16 * 16 + 16), id="the second source is repeated"),
        pytest.param(f"cpu,binary,jit:uni,undef,src:{F32} src:{F32} dst:{F32},,alg:binary_mul,1x16x1x1:8x16x4x4",
                     8 * 16 * 16, 4 * (2 * 8 * 16 * 16 + 16), id="the first source is repeated"),
        pytest.param(f"cpu,layer_normalization,jit,backward,src:{F32} dst:{F32} stats:{F32} diff_src:{F32},,,8x16",
                     None, 4 * 3 * 8 * 16, id="backward, with both gradients"),
        pytest.param(f"cpu,softmax,jit,backward_data,src:{F32} dst:{F32} diff_dst:{F32},,axis:1,8x16",
                     None, 4 * 3 * 8 * 16, id="backward of a softmax"),
        pytest.param(f"gpu,gemm,jit:gemm,undef,src_a:{F32} src_b:{F32} dst:{F32},,,4x8:8x2",
                     2 * 4 * 8 * 2, 4 * (4 * 8 + 8 * 2 + 4 * 2), id="the two sources of a product"),
        pytest.param(f"cpu,convolution,jit,forward_inference,src:{F32} wei:{F32} src_fused:{F32} wei_fused:{F32} "
                     f"bia_fused:{F32} dst:{F32},attr-post-ops:dw:k3s1p1,alg:convolution_direct,"
                     "mb1_ic4oc8_ih5oh5kh1sh1dh0ph0_iw5ow5kw1sw1dw0pw0",
                     2 * 4 * 8 * 25, None, id="a convolution fused into another one"),
    ],
)  # fmt: skip
def test_each_tensor_counts_once(text: str, flop: int | None, size: int | None) -> None:
    assert (parse(text).flop, parse(text).bytes) == (flop, size)


@pytest.mark.parametrize(
    ("text", "kind", "dtype", "problem", "flop", "size"),
    [
        ("SGEMM(T,N,128,32,64,0x7f,0x5a,128,0x5b,64,0x7e,0x5c,128)", "gemm", "f32", "T,N,128,32,64,128,64,128",
         2 * 128 * 32 * 64, 4 * (128 * 64 + 64 * 32 + 128 * 32)),
        ("ZGEMM3M(N,N,8,4,2,0x7f,0x5a,8,0x5b,2,0x7e,0x5c,8)", "gemm", "c64", "N,N,8,4,2,8,2,8", 8 * 64,
         16 * (16 + 8 + 32)),
        ("GEMM_S8U8S32(N,N,F,8,4,2,0x7f,0x5a,8,0x5b,2,0x7e,0x5c,8)", "gemm", "s8u8s32", "N,N,F,8,4,2,8,2,8",
         2 * 64, 16 + 8 + 4 * 32),
        ("SGEMM_BATCH(N,N,0x7f,0x7e)", "gemm", "f32", "N,N", None, None),
        ("SGETRF(128,128,0x55,128,0x56,0)", "lapack", "f32", "128,128,128,0", None, None),
        ("DTRSM(L,U,N,N,8,8,0x1,0x2,8,0x3,8)", "other", "f64", "L,U,N,N,8,8,8,8", None, None),
        ("FFT(dcfo128,tLim:2,desc:0x55d8be756980)", "fft", "f64", "dcfo128,tLim:2", None, None),
    ],
)  # fmt: skip
def test_calls_of_mkl(
    text: str, kind: str, dtype: str, problem: str, flop: int | None, size: int | None
) -> None:
    found = parse(text)
    assert (found.library, found.primitive_kind, found.dtype, found.problem) == (
        "MKL",
        kind,
        dtype,
        problem,
    )
    assert (found.flop, found.bytes) == (flop, size)
    assert found.algorithm == name_of(text) == text.partition("(")[0]


@pytest.mark.parametrize("text", ["", "hello", "cpu", "1,2,3", "convolution"])
def test_a_text_of_neither_library_has_no_fields(text: str) -> None:
    assert parse(text).flop is None
    assert parse(text).primitive_kind == ""


@given(
    st.text()
    | st.lists(st.text(alphabet="cpu:_mbic0123456789x,-fsrcwei ", max_size=30), max_size=12).map(
        ",".join
    )
    | st.lists(st.integers(0, 10**30), min_size=2, max_size=6).map(
        lambda sizes: (
            "cpu,matmul,ref,undef,src:f32::blocked:ab::f0,,,"
            + "x".join(map(str, sizes))
            + ":"
            + str(sizes)
        )
    )
)
def test_any_text_is_taken(text: str) -> None:
    found = parse(text)
    assert found.flop is None or 0 <= found.flop < 2**63
    assert found.bytes is None or 0 < found.bytes < 2**63
    assert isinstance(name_of(text), str)


def test_sizes_that_nobody_can_have_are_not_told() -> None:
    text = CONVOLUTION.format(prop="forward").replace("mb8", "mb" + "9" * 18)
    assert parse(text).flop is None
    assert parse(text.replace("9" * 18, "9" * 5000)).flop is None
