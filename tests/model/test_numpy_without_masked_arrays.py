"""What stands in for functions of NumPy that import numpy.ma: the same answers, without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layerscope.model.distinct import among
from layerscope.model.median import median, medians
from tests.replayed import RECORDINGS

INTEGERS = st.integers(-(2**52), 2**52)
# Converts a recording and sums it up, as the process beside a program does.
CONVERTS = """
import sys
from pathlib import Path
from layerscope.analyse.summary import summarise
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader

with Reader(open_run(Path(sys.argv[1]))) as reader:
    print(len(summarise(reader).findings.looked_at) > 5, "numpy.ma" in sys.modules)
"""


@given(arrays(np.int64, st.integers(1, 12), elements=INTEGERS))
def test_the_median_is_numpys(values: np.ndarray) -> None:
    assert median(values) == np.median(values)


@given(arrays(float, st.tuples(st.integers(0, 4), st.integers(1, 6)), elements=st.floats(-9, 9)))
def test_the_medians_of_rows_are_numpys(rows: np.ndarray) -> None:
    assert medians(rows).tolist() == np.median(rows, axis=1).tolist()


@given(st.lists(st.integers(-3, 9)), st.lists(st.integers(-3, 9)))
def test_values_are_among_the_known_ones_as_numpy_says(values: list[int], known: list[int]) -> None:
    found = among(np.array(values, np.int64), np.array(known, np.int64))

    assert found.tolist() == np.isin(values, known).tolist()


def test_a_conversion_and_its_summary_import_no_masked_arrays(tmp_path: Path) -> None:
    recording = tmp_path / "train.layerscope"
    shutil.copytree(RECORDINGS / "train", recording)
    done = subprocess.run(
        [sys.executable, "-c", CONVERTS, str(recording)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["True", "False"]
