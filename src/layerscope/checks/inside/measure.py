"""Run by the program's own Python in a throw-away process: what its numeric libraries choose and
reach on this machine.

usage: measure.py JSON with seconds, threads (a list of how many), array_bytes (of one of two arrays
that are copied; 0: not), matrix_bytes (of all matrices of one product), skip (names of things not
to be done) and only (names of packages; empty: all).

Each thing found is a line of standard output: the word `layerscope` and JSON. Between them are the
lines that oneDNN and MKL print about themselves; who started this reads both. Python 3.8 or later,
standard library only but for the packages that are looked at; whatever one of them does wrong
becomes a sentence.
"""

import ctypes
import importlib
import json
import os
import sys
import time

import measure_libraries as libraries
import measure_memory as memory
import measure_products as products

sys.path.pop(0)  # the folder of this script is not for others to import from

LIBC = ctypes.CDLL(None)
NAMES = {"numpy": "NumPy", "scipy": "SciPy", "torch": "PyTorch"}
# Of all seconds; what importing leaves is for products, in so many rounds, no longer than this for
# each.
MEMORY_SHARE, ROUNDS, PRODUCT_S = 0.15, 6, 0.25


def tell(**about):
    """One line, after what libraries have printed so far."""
    LIBC.fflush(None)
    os.write(1, ("\nlayerscope " + json.dumps(about) + "\n").encode())


def problem(what, error):
    """One sentence of an exception."""
    kind = type(error).__name__
    lines = str(error).strip().splitlines()
    first = ""
    if lines:
        first = lines[0][:200]
    sentence = f"{what}: {kind} {first}"
    tell(problem=sentence.rstrip())


class MeasureTask:
    """The task, and how much of its time is left."""

    def __init__(self, text):
        options = json.loads(text)
        self.seconds = options["seconds"]
        self.end = time.perf_counter() + self.seconds
        self.threads = options["threads"]
        self.array_bytes = options["array_bytes"]
        self.matrix_bytes = options["matrix_bytes"]
        self.skip = set(options["skip"])
        self.only = set(options["only"])

    def left(self):
        """Seconds."""
        return max(0.0, self.end - time.perf_counter())

    def begins(self, name):
        """Whether to do what has this name; when this process dies in it, the next one does not."""
        if name in self.skip:
            return False
        tell(begin=name)
        return True


def copy_memory(asked):
    """With each number of threads."""
    counts = asked.threads
    for threads in counts:
        what = f"copying memory with {threads} threads"
        if asked.array_bytes and asked.begins(what):
            try:
                seconds = asked.seconds * MEMORY_SHARE / len(counts)
                tell(bandwidth=memory.bandwidth(threads, asked.array_bytes, seconds))
            except (OSError, MemoryError, RuntimeError, ValueError) as error:
                problem(f"{what} failed", error)


def imported(asked, name):
    """The package; None when it is not there or does not work, which is told where it is of
    interest.
    """
    if (asked.only and name not in asked.only) or not asked.begins("import " + name):
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        # SciPy is nothing that a program must have.
        if not (isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]):
            problem(f"{name} cannot be imported", error)
        elif name in NAMES:
            tell(
                problem=f"{NAMES[name]} is not installed in this Python: nothing of it was measured"
            )
    except Exception as error:  # a broken package may raise anything
        problem(f"{name} cannot be imported", error)
    return None


def found_cases(asked):
    """Import one package after the other; each is asked what it uses, and the products that it can
    do are returned.
    """
    cases, known = [], set()
    for name, about in (
        ("numpy", libraries.numpy),
        ("scipy.linalg.blas", libraries.scipy),
        ("torch", libraries.torch),
    ):
        package = imported(asked, name)
        if package is None or not asked.begins("asking " + name):
            continue
        short = name.partition(".")[0]
        brought = [blas for blas in libraries.blas_mapped() if blas.path not in known]
        known |= {blas.path for blas in brought}
        try:
            for row in about(package):
                tell(library=row)
            for blas in brought:
                tell(library=blas.row(NAMES[short]))
            if short == "torch":
                products.introduce(package, brought)
            cases += products.cases(short, package, brought, asked.threads, NAMES[short])
        except Exception as error:
            problem(f"{NAMES[short]} does not report what it uses", error)
    return cases


def do_products(asked, cases):
    """Every product several times, some time apart: who disturbs one round may not be there in the
    next.

    Every other round is in the opposite order: what is compared has the same neighbours.
    """
    for number in range(ROUNDS):
        open_cases = products.unsettled(cases)[:: -1 if number % 2 else 1]
        seconds = min(PRODUCT_S, asked.left() / (ROUNDS - number) / max(1, len(open_cases)))
        for case in open_cases:
            if asked.left() <= 0 and number:
                return
            if not asked.begins(case.name):
                continue
            try:
                case.run(seconds, asked.matrix_bytes, lambda case=case: tell(listened=case.name))
                tell(rate=case.row())
            except Exception as error:
                # A data type that a library does not have is nothing to complain about.
                cases.remove(case)
                if case.is_expected:
                    problem(f"{case.name} failed", error)


def main():
    """All of it."""
    asked = MeasureTask(sys.argv[1])
    copy_memory(asked)
    do_products(asked, found_cases(asked))
    tell(end=True)


if __name__ == "__main__":
    main()
