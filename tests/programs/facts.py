"""Prints what a program can see of itself, as JSON: run with and without the recorder, it must be the same.

Left out is what differs between any two runs (ids, times), and what docs/recording.md says that differs: the variables
by which layerscope comes in, its two entries of sys.meta_path, the parent process, and that SIGURG is handled.
"""

import atexit
import builtins
import contextlib
import faulthandler
import gc
import json
import locale
import os
import random
import re
import resource
import signal
import site
import subprocess
import sys
import threading
import warnings

LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
STATUS = ("Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "CapEff", "CapInh", "Cpus_allowed", "Threads")
PROC = ("oom_score_adj", "coredump_filter", "personality", "cgroup", "timerslack_ns", "loginuid", "comm", "cmdline")


def descriptors():
    """Number and target of every open descriptor; of pipes and sockets without the inode."""
    found = {}
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with contextlib.suppress(OSError):  # the one that listed the folder
            target = os.readlink(f"/proc/self/fd/{name}")
            with open(f"/proc/self/fdinfo/{name}") as file:
                flags = re.search(r"flags:\s*(\w+)", file.read()).group(1)
            found[name] = [re.sub(r"\d+", "N", target) if target[0] != "/" else target, flags]
    return found


def fresh_descriptors():
    """The numbers that the next three open() get."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    for number in opened:
        os.close(number)
    return opened


def process_facts():
    status = {}
    with open("/proc/self/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in STATUS:
                status[name] = value.strip()
    # The other one: samples come by this signal, which nobody else has a handler for.
    status["SigCgt"] = f"{int(status['SigCgt'], 16) & ~(1 << signal.SIGURG - 1):016x}"
    proc = {}
    for name in PROC:
        with contextlib.suppress(OSError), open(f"/proc/self/{name}") as file:
            proc[name] = file.read()
    parent = os.getppid()
    return {
        "cwd": os.getcwd() if os.path.exists("/proc/self/cwd") else "gone",
        "status": status,
        "proc": proc,
        "descriptors": descriptors(),
        "fresh descriptors": fresh_descriptors(),
        "nice": os.nice(0),
        "scheduler": [os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
        "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
        "own group": os.getpgid(0) == os.getpid(),
        "group of the parent": os.getpgid(0) == os.getpgid(parent),
        "own session": os.getsid(0) == os.getpid(),
        "session of the parent": os.getsid(0) == os.getsid(parent),
        "terminals": [os.isatty(number) for number in (0, 1, 2)],
        "terminal sizes": [size(number) for number in (0, 1, 2)],
    }


def size(number):
    try:
        return list(os.get_terminal_size(number))
    except OSError as error:
        return error.errno


def signal_facts():
    """The handler of every signal, the mask, the timers."""
    handlers = {int(number): str(signal.getsignal(number)) for number in signal.valid_signals()}
    handlers = {number: re.sub(" at 0x[0-9a-f]+", "", text) for number, text in handlers.items()}
    mask = sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    return {"handlers": handlers, "mask": mask, "timers": [signal.getitimer(which) for which in range(3)]}


def is_ours(finder):
    """Whether this entry of sys.meta_path is one of the two that layerscope adds."""
    return getattr(finder, "is_layerscope_door", False) or type(finder).__name__ == "_Library"


def python_facts():
    return {
        "path": sys.path,
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "flags": str(sys.flags),
        "executable": sys.executable,
        "modules": sorted(sys.modules),
        "meta path": [type(finder).__name__ for finder in sys.meta_path if not is_ours(finder)],
        "path hooks": len(sys.path_hooks),
        "importer cache": sorted(sys.path_importer_cache),
        "builtins": sorted(set(dir(builtins)) - {"_"}),
        "streams": [[s.encoding, s.errors, s.line_buffering, s.name] for s in (sys.stdin, sys.stdout, sys.stderr) if s],
        "threads": [thread.name for thread in threading.enumerate()],
        "warnings": [str(entry) for entry in warnings.filters],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold(), gc.isenabled()],
        "hooks": [str(sys.gettrace()), str(sys.getprofile()), sys.excepthook.__name__, sys.displayhook.__name__],
        "exit functions": atexit._ncallbacks(),
        "faulthandler": faulthandler.is_enabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "user site": str(site.ENABLE_USER_SITE) if "site" in sys.modules else None,
        "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
    }


def random_facts():
    random.seed(1)
    found = {"random": random.random()}
    torch = sys.modules.get("torch")
    if torch:
        import numpy

        found["numpy"] = numpy.random.RandomState(1).rand()
        torch.manual_seed(1)
        found["torch"] = torch.rand(3).tolist()
    return found


def torch_facts():
    torch = sys.modules.get("torch")
    if not torch:
        return None
    return {
        "loader": [type(torch.__loader__).__name__, torch.__loader__ is torch.__spec__.loader, vars(torch.__loader__)],
        "profiler": torch.autograd._profiler_enabled(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "version": torch.__version__,
    }


OURS = ("PYTHONPATH", "INTEL_LIBITTNOTIFY64", "INTEL_JIT_PROFILER64", "NVTX_INJECTION64_PATH", "LAYERSCOPE_AGENT")
OURS_IN_BYTES = tuple(f"{name}=".encode() for name in OURS)


def children_facts():
    """The environment of a child, and what it inherits."""
    env = subprocess.run(["/usr/bin/env", "-0"], capture_output=True, check=True).stdout.split(b"\0")
    ls = subprocess.run(["/bin/sh", "-c", "ls /proc/self/fd; umask; ulimit -a"], capture_output=True, check=True)
    return {
        "environment": sorted(os.fsdecode(entry) for entry in env if entry and not entry.startswith(OURS_IN_BYTES)),
        "own environment": sorted(name for name in os.environ if name not in OURS),
        "shell": ls.stdout.decode(),
    }


def facts():
    """All of it."""
    return {
        "process": process_facts(),
        "signals": signal_facts(),
        "python": python_facts(),
        "random": random_facts(),
        "torch": torch_facts(),
        "children": children_facts(),
    }


def show():
    """Print all of it on stdout, so that a difference is one line."""
    print(json.dumps(facts(), indent=1, sort_keys=True), flush=True)


def work(number=100):
    """A known number of operators of a name that nothing else uses: `number` times aten::hypot."""
    if __name__ != "__main__":
        import quick_torch  # noqa: F401
    import torch

    x = torch.ones(4)
    for _ in range(number):
        torch.hypot(x, x)


if __name__ == "__main__":
    if "bare" not in sys.argv:
        work()
    show()
