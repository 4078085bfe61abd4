"""What numeric libraries say about themselves: versions, what they chose on this machine, their
threads.

Asked through their own functions by ctypes, because no package that asks them need be there. Python
3.8.
"""

import ctypes
import importlib
import os
import re

# What a file may be called that has a BLAS in it; Debian's libblas.so.3 may be any of them.
_BLAS_FILE = re.compile(r"blas|blis|mkl_rt|armpl", re.I)
_TORCH_FILE = "libtorch_cpu.so"
_RUNTIMES = {0: "none", 1: "pthreads", 2: "OpenMP"}  # openblas_get_parallel


def mapped():
    """The paths of code in this process."""
    found = {}
    with open("/proc/self/maps", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) < 6:
                continue
            rights, path = fields[1], fields[5]
            if "x" in rights and path.startswith("/"):
                found[path] = True
    return list(found)


def row(name, version="", chose="", threads=None, path="", runtime=""):
    """A library as it is told."""
    return {
        "name": name,
        "version": version,
        "chose": chose,
        "threads": threads,
        "path": path,
        "runtime": runtime,
    }


class Blas:
    """A BLAS that is mapped. `kind`: OpenBLAS, BLIS, MKL or BLAS for one that tells nothing and has
    no threads.
    """

    def __init__(self, path, kind="BLAS", version="", chose="", runtime=""):
        self.path = path
        self.kind = kind
        self.version = version
        self.chose = chose
        self.runtime = runtime
        self.get_threads = None
        self.set_threads = None

    def row(self, owner):
        """As it is told."""
        told = self.get_threads() if self.get_threads else 0
        threads = told if told > 0 else None  # BLIS says -1 where nobody has set them
        return row(self.name(owner), self.version, self.chose, threads, self.path, self.runtime)

    def is_heard(self):
        """Whether it can be told to print what it does."""
        if self.kind != "MKL":
            return False
        return hasattr(ctypes.CDLL(self.path), "MKL_Verbose")

    def name(self, owner):
        """MKL is one for all of a process."""
        if self.kind == "MKL":
            return self.kind
        return f"{self.kind} of {owner}"


def blas_mapped():
    """Those in this process. The one inside of torch counts as MKL."""
    found = []
    for path in mapped():
        file = os.path.basename(path)
        if not (_BLAS_FILE.search(file) or file == _TORCH_FILE):
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        blas = _openblas(library, path) or _mkl(library, path) or _blis(library, path)
        if blas is None and file.startswith("libblas.so"):
            blas = Blas(path)
        if blas is not None:
            found.append(blas)
    return found


class DlInfo(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def function(library, path, name, result=ctypes.c_int, *arguments):
    """The function of that name in the file `path`; None when there is none: a library shows those
    of all that it needs as its own.
    """
    try:
        found = library[name]
    except AttributeError:
        return None
    place = DlInfo()
    ctypes.CDLL(None).dladdr(ctypes.cast(found, ctypes.c_void_p), ctypes.byref(place))
    if os.path.realpath(os.fsdecode(place.file or b"")) != os.path.realpath(path):
        return None
    found.restype, found.argtypes = result, list(arguments)
    return found


def _openblas(library, path):
    """By the functions that it exports, with the additions that those who build it make to their
    names.
    """
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_", "_64", "64"):

            def named(name, *types, prefix=prefix, suffix=suffix):
                """The function of this name, with the additions."""
                full_name = f"{prefix}openblas_{name}{suffix}"
                return function(library, path, full_name, *types)

            config = named("get_config", ctypes.c_char_p)
            if config is None:
                continue
            core, parallel = named("get_corename", ctypes.c_char_p), named("get_parallel")
            words = config().decode("utf-8", "replace").split()
            version = next((word for word in words if re.match(r"\d+\.\d", word)), "")
            chose = core().decode("utf-8", "replace") if core else ""
            blas = Blas(
                path, "OpenBLAS", version, chose, _RUNTIMES.get(parallel(), "") if parallel else ""
            )
            blas.get_threads, blas.set_threads = (
                named("get_num_threads"),
                named("set_num_threads", None, ctypes.c_int),
            )
            return blas
    return None


def _mkl(library, path):
    """By its C functions, which torch's own library exports too."""
    tell = function(library, path, "MKL_Get_Version_String", None, ctypes.c_char_p, ctypes.c_int)
    if tell is None:
        return None
    text = ctypes.create_string_buffer(256)
    tell(text, len(text))
    told = text.value.decode("utf-8", "replace")
    found = re.search(r"Version ([\w.]+)", told)
    version = ""
    if found:
        version = found.group(1)
    blas = Blas(path, "MKL", version)
    blas.get_threads = function(library, path, "MKL_Get_Max_Threads")
    blas.set_threads = function(library, path, "MKL_Set_Num_Threads", None, ctypes.c_int)
    return blas


def _blis(library, path):
    version = function(library, path, "bli_info_get_version_str", ctypes.c_char_p)
    if version is None:
        return None
    number = function(library, path, "bli_arch_query_id")
    word = function(library, path, "bli_arch_string", ctypes.c_char_p, ctypes.c_int)
    chose = word(number()).decode("utf-8", "replace") if number and word else ""
    blas = Blas(path, "BLIS", version().decode("utf-8", "replace"), chose)
    blas.get_threads = function(library, path, "bli_thread_get_num_threads", ctypes.c_long)
    blas.set_threads = function(library, path, "bli_thread_set_num_threads", None, ctypes.c_long)
    return blas


def numpy(package):
    """NumPy itself, whose own loops choose among what they were compiled for."""
    try:
        loops = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:  # before NumPy 2
        loops = importlib.import_module("numpy.core._multiarray_umath")
    features = getattr(loops, "__cpu_features__", {})
    compiled = [*getattr(loops, "__cpu_baseline__", []), *getattr(loops, "__cpu_dispatch__", [])]
    chosen = [name for name in compiled if features.get(name)]
    yield row(
        "NumPy",
        package.__version__,
        chosen[-1] if chosen else "",
        path=os.path.dirname(package.__file__),
    )


def scipy(package):
    """SciPy has loops of its own, but they choose nothing."""
    import scipy as whole

    yield row("SciPy", whole.__version__, path=os.path.dirname(whole.__file__))


def torch(package):
    """PyTorch, its own loops (ATen), oneDNN in it, and the CUDA that it was built for."""
    path = os.path.dirname(package.__file__)
    library = os.path.join(path, "lib", _TORCH_FILE)
    config = package.__config__.show()
    yield row(
        "PyTorch", str(package.__version__), "", package.get_num_threads(), path, runtime(package)
    )
    told = re.search(r"CPU capability usage: (\w+)", config)
    ask = (
        getattr(package.backends.cpu, "get_cpu_capability", None)
        if hasattr(package.backends, "cpu")
        else None
    )
    yield row(
        "ATen",
        str(package.__version__),
        ask() if ask else told.group(1) if told else "",
        path=library,
    )
    if package.backends.mkldnn.is_available():
        version = re.search(r"(?:MKL-DNN|oneDNN|OneDNN) v([\w.]+)", config)
        yield row("oneDNN", version.group(1) if version else "", path=library)
    if package.version.cuda:
        yield row("CUDA", package.version.cuda, path=path)


def runtime(package):
    """Who starts the threads of ATen."""
    told = re.search(r"ATen parallel backend: (\S+)", package.__config__.parallel_info())
    return told.group(1) if told else ""
