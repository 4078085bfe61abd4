"""Products of square matrices: how each library does them, and how fast. Python 3.8."""

import ctypes
import os
import time

# Rows and columns to choose from: the largest whose product is done in PRODUCT_S, judged by the
# smallest.
SIZES = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
PRODUCT_S = 0.012
FEWEST, MOST = 3, 500
# The better half of so many runs within this share of the best: more would not tell more.
STEADY_RUNS, STEADY = 12, 0.01
# Two rounds whose best are as near as this: there is nothing more to find.
SETTLED = 0.015
PLAIN = ("float32", "float64")
BY_MM = (*PLAIN, "bfloat16", "float16")
TORCH = "PyTorch"
ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


class Case:
    """One product of one library. `make(size)` returns what does it once; `use(threads)` sets the
    threads of the library; in the context `listening()` the library tells who does it; `like`: the
    same with one thread; `as_large`: one that it is compared with, whose size it takes.

    With one thread it is CPU time of that thread that counts: who takes the CPU away in between
    makes nothing slower.
    """

    def __init__(
        self,
        what,
        owner,
        dtype,
        threads,
        make,
        use,
        listening=None,
        like=None,
        is_expected=True,
        as_large=None,
    ):
        self.name = f"{what}, {dtype}, {threads} threads"
        self.owner, self.dtype, self.threads = owner, dtype, threads
        self.make, self.use, self.listening, self.is_expected = make, use, listening, is_expected
        self.like, self.as_large, self.size, self.rounds = like, as_large, 0, []
        # Of a library whose number of threads cannot be set, others may have done a part.
        is_alone = threads == 1 and use is not nothing
        self.clock = time.thread_time if is_alone else time.perf_counter

    def run(self, seconds, limit_bytes, listened):
        """Repeat it for so long; the first time, find out how large it may be, and who does it."""
        end = time.perf_counter() + seconds
        self.use(self.threads)
        if not self.size:
            work = self.make(SIZES[0])
            if self.listening:
                with self.listening():
                    work()
                listened()
            self.size = self.fitting(work, limit_bytes)
            del work  # before the next one takes memory
        work = self.make(self.size)
        work()
        times = []
        while len(times) < FEWEST or (time.perf_counter() < end and len(times) < MOST):
            begin = self.clock()
            work()
            took = self.clock() - begin
            times.append(max(took, 1e-9))
            are_enough = len(times) >= STEADY_RUNS
            if are_enough and spread(times) < STEADY:
                break
        self.rounds.append(times)

    def fitting(self, work, limit_bytes):
        """The largest size that is done in time: with several threads, by what one of them reached
        undisturbed.
        """
        if self.as_large and self.as_large.size:
            return self.as_large.size
        if self.like and self.like.rounds:
            second = (
                (SIZES[0] / self.like.size) ** 3 * min(map(min, self.like.rounds)) / self.threads
            )
        else:
            second = fastest_of(work, self.clock)
        # Products of int8 are added up in four bytes.
        item = ITEM_BYTES[self.dtype]
        bytes_each = 3 * item if item > 1 else 6
        good = [
            size
            for size in SIZES
            if second * (size / SIZES[0]) ** 3 <= PRODUCT_S
            and size * size * bytes_each <= limit_bytes
        ]
        return good[-1] if good else SIZES[0]

    def is_settled(self):
        """Whether two rounds have come to the same best."""
        if len(self.rounds) < 2:
            return False
        bests = sorted(min(times) for times in self.rounds)
        best, next_best = bests[:2]
        near_best = best * (1 + SETTLED)
        return next_best <= near_best

    def row(self):
        """One row of the result; `library` is the one that computed it."""
        times = [one for times in self.rounds for one in times]
        return {
            "case": self.name,
            "library": self.owner,
            "dtype": self.dtype,
            "threads": self.threads,
            "size": self.size,
            "gflop_per_s": self.rate(times),
            "runs": len(times),
            "spread": spread(times),
            "rounds": list(map(self.rate, self.rounds)),
        }

    def rate(self, times):
        """GFLOP/s of the best."""
        return 2e-9 * self.size**3 / min(times)


def unsettled(cases):
    """Those that go on. Those with one thread are compared, round by round, so they go on
    together.
    """
    alone = [case for case in cases if case.threads == 1]
    alone_go_on = not all(case.is_settled() for case in alone)
    found = []
    for case in cases:
        goes_on = alone_go_on if case.threads == 1 else not case.is_settled()
        if goes_on:
            found.append(case)
    return found


def fastest_of(work, clock):
    """Seconds of the best of a few runs, the first ones of which are slow."""
    times = []
    while len(times) < FEWEST and sum(times) < PRODUCT_S * FEWEST:
        begin = clock()
        work()
        times.append(max(clock() - begin, 1e-9))
    return min(times)


def spread(times):
    """(slowest - fastest) / fastest of the better half."""
    count = max(1, (len(times) + 1) // 2)
    half = sorted(times)[:count]
    fastest, slowest = half[0], half[-1]
    return slowest / fastest - 1


def cases(package, module, brought, counts, title):
    """The products of one package, whose BLAS are `brought`, with each of these numbers of threads,
    one first.
    """
    if package == "torch":
        return list(torch_cases(module, brought, counts))
    blas = brought[0] if brought else None
    if blas is None and package == "scipy":
        return []  # it has that of NumPy
    owner, known = (blas.name(title), blas.set_threads) if blas else (title, None)
    make = numpy_product if package == "numpy" else scipy_product
    found = []
    for dtype in PLAIN:
        like = None
        for count in counts if known else [1]:
            what = f"a product of {title}"
            like = Case(what, owner, dtype, count, make(module, dtype), known or nothing, like=like)
            found.append(like)
    return found


def nothing(threads):
    """A library without threads."""


def numpy_product(numpy, dtype):
    """By matmul, into memory that is there."""

    def make(size):
        random = numpy.random.RandomState(1)
        shape = (size, size)
        left = random.standard_normal(shape).astype(dtype)
        right = random.standard_normal(shape).astype(dtype)
        into = numpy.empty_like(left)
        return lambda: numpy.matmul(left, right, into)

    return make


def scipy_product(blas, dtype):
    """By the BLAS function itself, which wants columns."""

    def make(size):
        import numpy

        random = numpy.random.RandomState(1)
        left, right, into = (
            numpy.asfortranarray(random.standard_normal((size, size)), dtype) for _ in range(3)
        )
        is_single = dtype == "float32"
        function = blas.sgemm if is_single else blas.dgemm
        return lambda: function(1.0, left, right, 0.0, into, overwrite_c=1)

    return make


def torch_cases(torch, brought, counts):
    """Plain products, of which the library is heard; and float32 by oneDNN, which plain products
    may not use.
    """
    torch.set_grad_enabled(False)
    kinds = [
        (dtype, f"a product of {TORCH}", torch_product(torch, dtype), dtype in PLAIN)
        for dtype in BY_MM
    ]
    if hasattr(torch, "_int_mm"):
        kinds.append(("int8", f"a product of {TORCH}", int8_product(torch), False))
    if torch.backends.mkldnn.is_available():
        kinds.append(("float32", f"a linear layer of {TORCH}", linear(torch), False))
    blas = next((blas.name(TORCH) for blas in brought if not blas.is_heard()), None)
    products = {}  # by data type and threads the first of them
    for dtype, what, make, is_expected in kinds:
        # A BLAS that does not tell what it does has products of these types alone.
        owner = blas if blas and dtype in PLAIN else "ATen"
        like = None
        for count in counts:
            like = Case(
                what,
                owner,
                dtype,
                count,
                make,
                torch.set_num_threads,
                lambda: Listening(torch, brought),
                like,
                is_expected,
                products.get((dtype, count)),
            )
            products.setdefault((dtype, count), like)
            yield like


def introduce(torch, brought):
    """Have oneDNN say who it is, with the threads that a program gets."""
    image = torch.ones(2, 16, 32, 32)
    kernel = torch.ones(16, 16, 3, 3)
    with Listening(torch, brought):
        torch.nn.functional.conv2d(image, kernel)


def torch_product(torch, dtype):
    """By mm, into memory that is there."""

    def make(size):
        kind = getattr(torch, dtype)
        left = torch.randn(size, size).to(kind)
        right = torch.randn(size, size).to(kind)
        into = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=into)

    return make


def int8_product(torch):
    """By the operator that quantised networks use; added up in int32."""

    def make(size):
        shape = (size, size)
        left = torch.randint(-128, 127, shape, dtype=torch.int8)
        right = torch.randint(-128, 127, shape, dtype=torch.int8)
        return lambda: torch._int_mm(left, right)

    return make


def linear(torch):
    """With weights in the layout that oneDNN likes, as a compiled network has them."""

    def make(size):
        operators = torch.ops.mkldnn
        left = torch.randn(size, size)
        right = torch.randn(size, size)
        packed = operators._reorder_linear_weight(right, size)
        del right
        return lambda: operators._linear_pointwise(left, packed, None, "none", [], "")

    return make


class Listening:
    """While it lasts, oneDNN and MKL print what they do: who they are, and one line a product."""

    def __init__(self, torch, brought):
        self.torch = torch
        self.mkl = [ctypes.CDLL(blas.path) for blas in brought if blas.is_heard()]

    def __enter__(self):
        self._set(1)
        return self

    def __exit__(self, *_):
        ctypes.CDLL(None).fflush(None)
        self._set(0)

    def _set(self, level):
        verbose = getattr(self.torch._C, "_verbose", None)
        if verbose is not None:
            verbose.mkldnn_set_verbose(level)
        else:  # oneDNN reads it when it is first used
            os.environ["ONEDNN_VERBOSE"] = os.environ["DNNL_VERBOSE"] = str(level)
        for library in self.mkl:
            library.MKL_Verbose(level)
