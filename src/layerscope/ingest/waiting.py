"""What a thread waits for, by the system call that it is in and the functions of its stack.

The states are `model.layers.WAITS`. From the strongest evidence to the weakest:

- **`preempted`**: it could run, but others had its CPU.
- **`stopped`**: a signal (SIGSTOP, Ctrl-Z) or a debugger has stopped the process.
- **`page_fault`**: it is in the kernel and in no system call.
- **`gil`**: in a function of CPython that waits for the interpreter's lock, or for another thread
  to take it.
- **`pool`**: a thread of a pool (OpenMP, autograd, the framework's own, Eigen, XLA, LLVM, BLAS,
  pthreadpool), or one that serves gloo, NCCL, the store of torchrun, CUDA's driver or Python's
  multiprocessing, that has no work. It is *idle*.
- **`barrier`**: a thread of an OpenMP team that waits for the others of it, or else inside of the
  runtime of OpenMP. Where the runtime has no names, `team_waits` tells that from `pool`.
- **`join`**: in `pthread_join`, `std::thread::join` or Python's `Thread.join`, waiting for a thread
  to end; or waiting for work that other threads do for it: those of an engine that executes
  operators, or those of XLA.
- **`backward`**: waiting for the backward pass, which autograd's own threads run for a GPU.
- **`gpu`**: in a function that waits for a GPU, and gives up its CPU meanwhile.
- **`sleep`**, **`yield`**: it asked for that.
- **`pipe`**, **`socket`**, **`file`**, **`event`**: reading, writing or polling one of these.
- **`lock`**: any other futex.
- **`child`**: waiting for a process to end, or for a new one to begin its program.
- **`other`**: the rest.
- **`unknown`**: nobody saw what it was in: most waits that are shorter than 10 ms.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from layerscope.model.gpu_waits import WAITS_FOR_GPU
from layerscope.model.layers import WAITS

# What the functions of a stack tell, as bits. Those of a wait lie inside of the innermost one that
# does WORK; TEAM: the thread belongs to OpenMP. pthreadpool's threads begin in a function that
# others may call like it too; theirs waits by a system call of its own.
GIL, BARRIER, POOL, TEAM, OPENMP, WORK, MAIN, PLAIN, JOIN = 1, 2, 4, 8, 16, 32, 64, 128, 256
# A frame of Python; one that waits for a thread, which holds through all native functions that the
# interpreter waits by.
PYTHON, PYTHON_JOIN = 512, 1024
# The runtime of OpenMP was called by code of the program: the thread began a team.
REGION = 2048
# The driver of CUDA, which has no names. A function that has others run the backward pass, through
# all that it calls.
DRIVER, EXECUTES = 4096, 8192
# A function that waits for a GPU, through all that it calls.
GPU = 16384
# A function of Python's library in which a thread serves others, through those of Python by which
# it waits (OF_A_WAIT), and all native ones.
SERVES, OF_A_WAIT = 32768, 65536
# Of these a worker in a runtime without names has OPENMP alone.
NAMELESS = OPENMP | BARRIER | WORK
_EVIDENCE = (
    (
        GIL,
        re.compile(
            r"^(take_gil|drop_gil|tstate_wait_attach|_PyThreadState_Attach|"
            r"PyEval_RestoreThread|_PyEval_AcquireLock)"
        ),
    ),
    (BARRIER, re.compile(r"barrier|__kmp_(hyper|tree|dist)_|^gomp_.*_wait(_end)?$", re.IGNORECASE)),
    (
        POOL,
        re.compile(
            r"ThreadPool::main_loop|ReadyQueue::pop|blas_thread_server|^__kmp_fork_barrier|tbb::.*(wait|sleep)|"
            r"^gomp_(simple_)?barrier_wait(_end)?$|ProcessGroupGloo::runLoop|gloo::transport::\w+::Loop::run|StoreDaemon::run|"
            r"^Eigen::ThreadPoolTempl\b.*::WaitForWork$|^llvm::StdThreadPool::processTasks$|^xla::WorkerThread::WorkLoop$|"
            r"^xla::SlowOperationAlarm::AlarmLoop$|^tsl::UnboundedWorkQueue::PooledThreadFunc$|"
            r"^stream_executor::(\w+::)?StreamStatusMonitor::MonitorLoop$|"
            r"ProcessGroupNCCL::(HeartbeatMonitor|Watchdog)::runLoop$|^rasThreadMain$|^ncclProxy(Service(UDS)?|Progress)$"
        ),
    ),
    (MAIN, re.compile(r"^thread_main$")),
    (PLAIN, re.compile(r"^syscall$")),
    (
        JOIN,
        re.compile(
            r"^_*pthread_(clock|timed)?join(_np|_ex)?(@|$)|^std::j?thread::join\b|"
            r"(^|:)ThreadedEngine::WaitFor(Var|All)$|(^|:)(BlockUntilReady(WithCancel)?|AwaitBuffersReady)$|"
            r"^xla::Semaphore::(Scoped)?Acquire$"  # as many executions are under way as may be
        ),
    ),
    (DRIVER, re.compile(r"^\[libcuda\.so")),
    (GPU, re.compile(WAITS_FOR_GPU)),
    (EXECUTES, re.compile(r"(^|:)(Python)?Engine::execute$")),
    (OPENMP, re.compile(r"^(gomp_|GOMP_|__kmp|\[lib(gomp|i?omp5?)[-.\]])")),
)
# Threads of an engine that executes operators begin in a function that only its signature tells.
_POOL_BY_SIGNATURE = re.compile(r"\bengine::ThreadedEngine\w*::.*\bdmlc::ManualEvent\b")
# Up to CPython 3.12 `Thread.join` waits there; names have no class before 3.11.
_PYTHON_JOIN = re.compile(r"^Thread\.join$|(^|\.)_wait_for_tstate_lock$")
# Threads of `multiprocessing`: one writes what is put into a queue, one hands over descriptors; and
# the one of tqdm that looks at bars now and then.
_SERVES = re.compile(r"^(Queue\._feed|_ResourceSharer\._serve|TMonitor\.run)$")
_OF_A_WAIT = re.compile(r"^((Condition|Event)\.wait|(Socket)?Listener\.accept|socket\.accept)$")
# What waiting itself goes through, and where threads begin: nothing that a program does with its
# time.
_IS_NO_WORK = re.compile(
    r"^(\[(lib(c|pthread)|ld-linux)[-.]|_*clone3?$|start_thread$|_*pthread_|_*futex|syscall$|_*lll_|sem_|__new_sem|"
    r"__internal_|do_wait$|std::(condition_variable|mutex|unique_lock|__)|__gthread|thread_start$|execute_native_thread|"
    r"Eigen::EventCount::|absl::(lts_\d+::)?(Mutex|CondVar|Notification|BlockingCounter|synchronization_internal)::|"
    r"AbslInternalPerThreadSem|PyCOND_(TIMED)?WAIT$|_*epoll_p?wait2?$|_*p?poll$|_*p?select$|uv_run$|uv__io_poll$)"
)

Bits = TypeVar("Bits", int, NDArray[Any])

# x86-64 numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl).
_FUTEX = (202, 449, 455)
_SLEEP, _YIELD, _ACCEPT = (35, 230), (24,), (43, 288)
_OF_A_FILE = (
    0,
    1,
    17,
    18,
    19,
    20,
    40,
    45,
    44,
    46,
    47,
    42,
    43,
    288,
    295,
    296,
    299,
    327,
    328,
    74,
    75,
    275,
    276,
)
# Those that name a file, read a folder or begin a program from a file, those that tell the disk
# to write, and those that wait for a lock of a file.
_OF_A_DISK = (
    2,
    4,
    6,
    21,
    59,
    72,
    73,
    76,
    77,
    78,
    80,
    82,
    83,
    84,
    87,
    89,
    162,
    208,
    217,
    257,
    258,
    262,
    263,
    264,
    267,
    269,
    277,
    285,
    306,
    316,
    322,
    332,
    426,
    437,
    439,
)
_CHILD = (56, 57, 58, 61, 247, 435)
_POLL = (7, 23, 232, 270, 271, 281, 441)
_NONE, _NOT_SEEN, _STOPPED = -1, -2, -3
_CODES = {state: code for code, state in enumerate(WAITS)}
# The one that is idle.
POOL_STATE = _CODES["pool"]
# By the kind of its file, as the sampler tells it (rawfile/sampler_file.py): none, pipe, socket,
# file, terminal, event.
_BY_FILE = tuple(_CODES[state] for state in ("other", "pipe", "socket", "file", "file", "event"))


def evidence(name: str, layer: str = "native", signature: str = "") -> int:
    """What a function called `name` tells about a wait that it is on the stack of: bits.
    `signature`: the name with its arguments, where it is known.

    Functions of the kernel are how a thread waits, not for what; all but native ones are what it
    does.
    """
    if layer == "python":
        bits = WORK | PYTHON | (PYTHON_JOIN if _PYTHON_JOIN.search(name) else 0)
        bits |= OF_A_WAIT if _OF_A_WAIT.search(name) else 0
        return bits | (SERVES if _SERVES.search(name) else 0)
    if layer != "native":
        return 0 if layer == "kernel" else WORK
    if _POOL_BY_SIGNATURE.search(signature):
        return POOL
    bits = sum(bit for bit, pattern in _EVIDENCE if pattern.search(name))
    if bits:
        return bits | (WORK if bits & EXECUTES else 0)
    return 0 if _IS_NO_WORK.match(name) else WORK


def deeper(around: Bits, own: Bits) -> Bits:
    """What a stack tells whose innermost function tells `own`, and all around it `around`; of many
    at once too.
    """
    works = (own & WORK) // WORK  # 0 or 1
    begins_team = (own & OPENMP) // OPENMP * (1 - (around & WORK) // WORK)
    in_python = (own & PYTHON) // PYTHON
    joins = own & PYTHON_JOIN | (1 - in_python) * (around & PYTHON_JOIN)
    of_a_wait = (own & OF_A_WAIT) // OF_A_WAIT
    ends_service = in_python * (1 - of_a_wait)
    joins |= own & SERVES | (1 - ends_service) * (around & SERVES)
    begins_region = (own & OPENMP) // OPENMP * ((around & WORK) // WORK)
    working = works * (around & (TEAM | REGION) | (around | own) & (EXECUTES | GPU) | WORK | joins)
    told: Bits = working + (1 - works) * (
        around | own | begins_team * TEAM | begins_region * REGION
    )
    return told


def _is_one_of(system_call: np.ndarray, wanted: tuple[int, ...]) -> np.ndarray:
    """By a table: the other way of `np.isin` imports numpy.ma, which takes 30 ms."""
    return np.isin(system_call, wanted, kind="table")


def states(
    system_call: np.ndarray,
    file: np.ndarray,
    is_preempted: np.ndarray,
    evidence_of_stack: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The state (index into `WAITS`) of each wait, and whether it is idle. All arrays have one
    entry for each wait.
    """
    found = np.full(len(system_call), _CODES["other"], np.int8)
    found[system_call == _NOT_SEEN] = _CODES["unknown"]
    found[_is_one_of(system_call, _CHILD)] = _CODES["child"]
    found[_is_one_of(system_call, _OF_A_DISK)] = _CODES["file"]
    found[_is_one_of(system_call, _POLL)] = _CODES["event"]
    of_a_file = _is_one_of(system_call, (*_OF_A_FILE, *_POLL)) & (file > 0) & (file < len(_BY_FILE))
    found[of_a_file] = np.array(_BY_FILE, np.int8)[file[of_a_file]]
    found[_is_one_of(system_call, _SLEEP)] = _CODES["sleep"]
    found[_is_one_of(system_call, _YIELD)] = _CODES["yield"]
    on_futex = _is_one_of(system_call, _FUTEX)
    found[on_futex] = _CODES["lock"]
    in_openmp = evidence_of_stack & (BARRIER | OPENMP) > 0
    found[on_futex & in_openmp] = _CODES["barrier"]
    found[on_futex & (evidence_of_stack & (JOIN | PYTHON_JOIN) > 0)] = _CODES["join"]
    # A library without names: what does no work inside of it has none to do.
    is_nameless = evidence_of_stack & NAMELESS == OPENMP
    is_plain_pool = evidence_of_stack & (MAIN | PLAIN | WORK) == MAIN | PLAIN
    can_be_pool = _is_one_of(system_call, (*_FUTEX, *_POLL))
    in_pool = can_be_pool & (evidence_of_stack & POOL > 0)
    # Who begins a parallel region waits there for its team, below the code that began it.
    of_a_region = in_pool & (evidence_of_stack & REGION > 0)
    found[of_a_region] = _CODES["barrier"]
    in_pool &= ~of_a_region
    is_backward = in_pool & (evidence_of_stack & EXECUTES > 0)
    found[is_backward] = _CODES["backward"]
    in_driver = can_be_pool & (evidence_of_stack & (DRIVER | WORK) == DRIVER)
    is_pool = in_pool & ~is_backward | in_driver | on_futex & (is_nameless | is_plain_pool)
    serves = _is_one_of(system_call, (*_FUTEX, *_POLL, *_ACCEPT)) & (evidence_of_stack & SERVES > 0)
    found[is_pool | serves] = _CODES["pool"]
    for_gpu = _is_one_of(system_call, (*_FUTEX, *_POLL, *_YIELD)) & (evidence_of_stack & GPU > 0)
    found[for_gpu] = _CODES["gpu"]
    found[on_futex & (evidence_of_stack & GIL > 0)] = _CODES["gil"]
    found[system_call == _NONE] = _CODES["page_fault"]
    found[system_call == _STOPPED] = _CODES["stopped"]
    found[is_preempted] = _CODES["preempted"]
    return found, found == POOL_STATE
