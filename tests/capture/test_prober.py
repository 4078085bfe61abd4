"""The pages of processes that come and go are not kept, and what they tell of oneDNN is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.capture.frameworks.torch import probe
from layerscope.capture.frameworks.torch.probe import ProbeAnswer
from layerscope.capture.frameworks.torch.prober import TorchProber
from layerscope.rawfile import layout
from tests.capture.shared_memory import Page


def test_all_but_the_first_processes_that_record_keep_no_descriptor_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        probe, "known", lambda library: ProbeAnswer("good", "", 200, 304, 1.0, 1.0, True)
    )
    prober = TorchProber(use_tsc=False)
    before = os.listdir("/proc/self/fd")

    late = Page(library=str(tmp_path / "libtorch_cpu.so"))
    prober.take(late.fd, 1)
    for _ in range(20):
        page = Page(library=str(tmp_path / "libtorch_cpu.so"), callbacks=3)
        prober.take(page.fd, 1)
        assert late.fields["probe"][0] == layout.PROBE_GOOD
        os.close(page.fd)
    prober.finish()

    assert [problem.code for problem in prober.problems] == ["probe_late"]
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 6


ASKED_ISA = "Intel AVX2 with Intel DL Boost"


@pytest.mark.parametrize(
    ("bits", "cap", "told"),
    [
        (0, b"", {}),
        (layout.ONEDNN_CONVOLUTION_ON, b"", {"onednn_isa": f"{ASKED_ISA} under no cap"}),
        (
            layout.ONEDNN_CONVOLUTION_OFF | layout.ONEDNN_PRODUCT_OFF | layout.ONEDNN_PRODUCT_ON,
            b"avx2",
            {
                "onednn_isa": f"{ASKED_ISA} under AVX2",
                "onednn_max_cpu_isa": "AVX2",
                "onednn_switch": "convolutions off, products at times",
            },
        ),
        (layout.ONEDNN_PRODUCT_ON, b"../secret", {"onednn_isa": f"{ASKED_ISA} under no cap"}),
    ],
)
def test_what_a_process_tells_of_onednn_is_among_the_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bits: int, cap: bytes, told: dict[str, str]
) -> None:
    answer = ProbeAnswer("good", "", 200, 304, 1.0, 1.0, True, onednn="3.12.0")
    monkeypatch.setattr(probe, "known", lambda library: answer)
    monkeypatch.setattr(probe, "keep", lambda library, answer: None)
    asked: list[str] = []

    def ask_onednn(python: str, library: Path, cap: str) -> str:
        asked.append(cap)
        return f"{ASKED_ISA} under {cap or 'no cap'}"

    monkeypatch.setattr(probe, "ask_onednn", ask_onednn)
    prober = TorchProber(use_tsc=False)
    page = Page(library=str(tmp_path / "libtorch_cpu.so"), callbacks=3)
    prober.take(page.fd, os.getpid())
    page.fields["onednn"], page.fields["onednn_cap"] = bits, cap
    for _ in range(3):
        prober.publish()
    prober.finish()
    os.close(page.fd)

    found = {name: text for name, text in prober.versions.items() if name.startswith("onednn")}
    assert found == {"onednn": "3.12.0", **told}
    assert len(asked) == bool(bits)
