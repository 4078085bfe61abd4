"""What a thread waits for."""

from __future__ import annotations

import numpy as np
import pytest

from layerscope.ingest.waiting import PYTHON, TEAM, WORK, deeper, evidence, states
from layerscope.model.layers import WAITS
from layerscope.rawfile import sampler_file as files

FUTEX, READ, POLL, EPOLL, NANOSLEEP, YIELD, WAIT4 = 202, 0, 7, 232, 35, 24, 61
VFORK, OPENAT, GETDENTS64, PAUSE, ACCEPT4 = 58, 257, 217, 34, 288


def state(
    system_call: int, *functions: str, file: int = files.NO_FILE, preempted: bool = False
) -> str:
    """The state of one wait with these functions on its stack."""
    told = 0
    for name in functions:
        told = deeper(told, evidence(name))
    found, idle = states(
        np.array([system_call]), np.array([file]), np.array([preempted]), np.array([told])
    )
    name = WAITS[int(found[0])]
    assert bool(idle[0]) == (name == "pool")
    return name


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (("main", "pthread_mutex_lock"), "lock"),
        (("_PyEval_EvalFrameDefault", "take_gil", "pthread_cond_timedwait"), "gil"),
        (("gomp_thread_start", "kernel", "gomp_team_barrier_wait_end"), "barrier"),
        (("clone3", "start_thread", "[libgomp.so.1.0.0]", "work", "[libgomp.so.1.0.0]"), "barrier"),
        (("clone3", "start_thread", "[libgomp.so.1.0.0]", "[libgomp.so.1.0.0]"), "pool"),
        (("clone3", "start_thread", "[libgomp-24e2ab19.so.1.0.0]"), "pool"),
        (
            (
                "clone3",
                "start_thread",
                "[libgomp.so.1.0.0]",
                "work",
                "pthread_mutex_lock",
                "__lll_lock_wait",
            ),
            "lock",
        ),
        (("main", "GOMP_parallel", "work", "GOMP_barrier"), "barrier"),
        (("take_gil", "callback", "pthread_mutex_lock"), "lock"),
        (("gomp_thread_start", "gomp_barrier_wait_end"), "pool"),
        (
            ("main", "at::add", "GOMP_parallel", "gomp_team_start", "gomp_barrier_wait_end"),
            "barrier",
        ),
        (
            ("main", "Engine::execute", "at::mm", "GOMP_parallel", "gomp_barrier_wait_end"),
            "barrier",
        ),
        (("c10::ThreadPool::main_loop(unsigned long)", "pthread_cond_wait"), "pool"),
        (("torch::autograd::ReadyQueue::pop()",), "pool"),
        (("start_thread", "Engine::thread_init", "Engine::thread_main", "ReadyQueue::pop"), "pool"),
        (("main", "PythonEngine::execute", "Engine::thread_main", "ReadyQueue::pop"), "backward"),
        (("main", "Engine::execute", "Function::apply", "pthread_mutex_lock"), "lock"),
        (("start_thread", "[libcuda.so.580.1]", "[libcuda.so.580.1]", "[libc.so.6]"), "pool"),
        (("main", "cuEventSynchronize", "[libcuda.so.580.1]", "pthread_cond_wait"), "gpu"),
        (("main", "cudaDeviceSynchronize", "[libcudart.so.13]", "cuCtxSynchronize_v2"), "gpu"),
        (("main", "cudaStreamSynchronize", "[libcudart.so.13]", "[libcuda.so.1]"), "gpu"),
        (("main", "cudaMemcpyAsync", "cuMemcpyDtoHAsync_v2", "[libcuda.so.1]"), "gpu"),
        (("main", "hipStreamSynchronize", "[libamdhip64.so.6]"), "gpu"),
        (("main", "cudaMemcpyAsync", "cuMemcpyHtoDAsync_v2", "pthread_mutex_lock"), "lock"),
        (
            (
                "start_thread",
                "Eigen::ThreadPoolTempl::WaitForWork",
                "Eigen::EventCount::CommitWait",
            ),
            "pool",
        ),
        (
            (
                "start_thread",
                "Eigen::ThreadPoolTempl::WorkerLoop",
                "of_work()",
                "pthread_cond_wait",
            ),
            "lock",
        ),
        (
            ("start_thread", "llvm::StdThreadPool::processTasks", "std::condition_variable::wait"),
            "pool",
        ),
        (
            (
                "start_thread",
                "llvm::StdThreadPool::processTasks",
                "of_work()",
                "pthread_mutex_lock",
            ),
            "lock",
        ),
        (("xla::WorkerThread::WorkLoop", "absl::lts_20260526::Mutex::Block", "syscall"), "pool"),
        (("PooledThread", "absl::lts_20260526::Mutex::Block", "syscall"), "lock"),
        (
            (
                "main",
                "jax::BlockUntilReadyWithCancel",
                "absl::Notification::WaitForNotification",
                "syscall",
            ),
            "join",
        ),
        (("main", "xla::Semaphore::Acquire", "absl::Mutex::Block", "syscall"), "join"),
        (
            ("start_thread", "c10d::ProcessGroupNCCL::Watchdog::runLoop", "pthread_cond_timedwait"),
            "pool",
        ),
        (("start_thread", "[libcuda.so.1]", "of_the_program()", "pthread_mutex_lock"), "lock"),
        (("start_thread", "blas_thread_server"), "pool"),
        (("start_thread", "thread_main", "syscall"), "pool"),
        (("start_thread", "thread_main", "pthreadpool_compute", "syscall"), "lock"),
        (("start_thread", "thread_main", "pthread_mutex_lock"), "lock"),
        (("main", "syscall"), "lock"),
        (("main", "std::thread::join()", "__pthread_clockjoin_ex", "futex_wait"), "join"),
        (("main", "[libstdc++.so.6]", "pthread_join", "[libc.so.6]"), "join"),
        (("main", "pthread_join@GLIBC_2.34"), "join"),
        (("main", "std::jthread::join"), "join"),
        (("main", "pthread_timedjoin_np"), "join"),
        (("main", "pthread_join", "destructor()", "pthread_mutex_lock"), "lock"),
        (("main", "joined", "pthread_cond_wait"), "lock"),
        (("main", "engine::ThreadedEngine::WaitForVar", "std::condition_variable::wait"), "join"),
        (
            ("start_thread", "c10d::ProcessGroupGloo::runLoop", "std::condition_variable::wait"),
            "pool",
        ),
        (("c10d::ProcessGroupGloo::runLoop", "gloo::ring", "pthread_cond_timedwait"), "lock"),
    ],
)
def test_a_futex_is_what_the_functions_say(functions: tuple[str, ...], expected: str) -> None:
    assert state(FUTEX, *functions) == expected


def test_a_thread_of_an_engine_is_told_by_its_signature() -> None:
    """It waits for operators, or for what an operator waits for."""
    begins = "std::_Function_handler::_M_invoke"
    signature = (
        "std::_Function_handler<void (std::shared_ptr<dmlc::ManualEvent>), "
        "engine::ThreadedEnginePerDevice::Start()::'lambda'(std::shared_ptr<dmlc::ManualEvent>)>"
        "::_M_invoke(std::_Any_data const&, std::shared_ptr<dmlc::ManualEvent>&&)"
    )
    inside = deeper(
        evidence("std::thread::_State_impl::_M_run"), evidence(begins, "native", signature)
    )
    for functions, expected in (((), "pool"), (("Dense::Forward",), "lock")):
        told = inside
        for name in (*functions, "std::condition_variable::wait", "pthread_cond_wait"):
            told = deeper(told, evidence(name))
        found, _ = states(*(np.array([one]) for one in (FUTEX, files.NO_FILE, False, told)))
        assert WAITS[int(found[0])] == expected


@pytest.mark.parametrize(
    ("system_call", "file", "expected"),
    [
        (READ, files.PIPE, "pipe"), (READ, files.SOCKET, "socket"), (READ, files.REGULAR, "file"),
        (READ, files.TERMINAL, "file"), (POLL, files.NO_FILE, "event"), (POLL, files.PIPE, "pipe"),
        (EPOLL, files.EVENT, "event"), (NANOSLEEP, files.NO_FILE, "sleep"), (YIELD, files.NO_FILE, "yield"),
        (WAIT4, files.NO_FILE, "child"), (files.NO_SYSTEM_CALL, files.NO_FILE, "page_fault"),
        (VFORK, files.NO_FILE, "child"), (OPENAT, files.NO_FILE, "file"), (GETDENTS64, files.REGULAR, "file"),
        (files.UNKNOWN_SYSTEM_CALL, files.NO_FILE, "unknown"), (PAUSE, files.NO_FILE, "other"),
        (files.STOPPED_BY_SIGNAL, files.NO_FILE, "stopped"),
    ],
)  # fmt: skip
def test_other_system_calls_are_what_they_are_called_with(
    system_call: int, file: int, expected: str
) -> None:
    assert state(system_call, file=file) == expected


def test_a_thread_that_serves_a_library_is_idle_while_it_polls_and_one_of_the_program_is_not() -> (
    None
):
    assert (
        state(
            EPOLL, "start_thread", "gloo::transport::tcp::Loop::run", "epoll_wait", file=files.EVENT
        )
        == "pool"
    )
    serves = (
        "start_thread",
        "c10d::detail::LibUVStoreDaemon::run",
        "uv_run",
        "uv__io_poll",
        "epoll_pwait",
    )
    assert state(EPOLL, *serves, file=files.EVENT) == "pool"
    assert state(EPOLL, "main", "uv_run", "uv__io_poll", "epoll_pwait", file=files.EVENT) == "event"
    assert state(POLL, "start_thread", "[libcuda.so.1]", "poll", file=files.EVENT) == "pool"
    assert state(POLL, "main", "cuInit", "[libcuda.so.1]", "poll", file=files.EVENT) == "event"
    assert state(READ, "gloo::transport::tcp::Loop::run", "read", file=files.SOCKET) == "socket"
    assert state(POLL, "start_thread", "ncclProxyService", "poll", file=files.EVENT) == "pool"
    assert state(POLL, "main", "ncclCommInitRank", "poll", file=files.SOCKET) == "socket"


def test_a_thread_that_openmp_began_belongs_to_its_team_and_one_that_calls_it_does_not() -> None:
    def told(*functions: str) -> int:
        found = 0
        for name in functions:
            found = deeper(found, evidence(name))
        return found & TEAM

    assert told("clone3", "start_thread", "gomp_thread_start", "work")
    assert told("clone3", "start_thread", "[libgomp.so.1]", "work", "memcpy")
    assert not told("_start", "main", "GOMP_parallel", "work")
    assert not told("clone3", "start_thread", "worker(void*)", "GOMP_parallel", "work")


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (("python main", "python Thread.join", "python Thread._wait_for_tstate_lock", "sem_wait"), "join"),
        (("python Thread._wait_for_tstate_lock", "lock_PyThread_acquire_lock", "acquire_timed"), "join"),
        (("python _wait_for_tstate_lock", "PyThread_acquire_lock_timed"), "join"),
        (("python Thread.join", "ThreadHandle_join", "PyEvent_WaitTimed", "futex"), "join"),
        (("python Thread.join", "python on_signal", "acquire_timed"), "lock"),
        (("python Thread.join", "python Thread._wait_for_tstate_lock", "take_gil"), "gil"),
        (("python Queue.join", "lock_PyThread_acquire_lock"), "lock"),
        (("python work", "drop_gil", "pthread_cond_wait"), "gil"),
        (("python work", "take_gil.constprop.0", "pthread_cond_timedwait"), "gil"),
    ],
)  # fmt: skip
def test_python_waits_for_threads_by_its_own_locks(frames: tuple[str, ...], expected: str) -> None:
    bits = 0
    for frame in frames:
        name = frame.removeprefix("python ")
        layer = "python" if name != frame else "native"
        bits = deeper(bits, evidence(name, layer))
    found, _ = states(np.array([FUTEX]), np.array([-1]), np.array([False]), np.array([bits]))
    assert WAITS[int(found[0])] == expected


@pytest.mark.parametrize(
    ("system_call", "frames", "expected"),
    [
        (FUTEX, ("python Queue._feed", "python Condition.wait", "acquire_timed"), "pool"),
        (FUTEX, ("python Queue._feed", "python Condition.wait", "take_gil"), "gil"),
        (FUTEX, ("python Queue._feed", "python Shape.__reduce__", "acquire_timed"), "lock"),
        (FUTEX, ("python Queue.get", "python Condition.wait", "acquire_timed"), "lock"),
        (ACCEPT4, ("python _ResourceSharer._serve", "python Listener.accept", "python socket.accept"), "pool"),
        (ACCEPT4, ("python serve_forever", "python Listener.accept", "python socket.accept"), "socket"),
        (READ, ("python _ResourceSharer._serve", "python Listener.accept", "python answer_challenge"), "socket"),
        (FUTEX, ("python TMonitor.run", "python Event.wait", "python Condition.wait", "sem_wait"), "pool"),
    ],
)  # fmt: skip
def test_threads_of_pythons_library_that_serve_others_are_idle_while_they_wait(
    system_call: int, frames: tuple[str, ...], expected: str
) -> None:
    bits = 0
    for frame in frames:
        name = frame.removeprefix("python ")
        layer = "python" if name != frame else "native"
        bits = deeper(bits, evidence(name, layer))
    file = files.NO_FILE if system_call == FUTEX else files.SOCKET
    found, _ = states(
        np.array([system_call]), np.array([file]), np.array([False]), np.array([bits])
    )
    assert WAITS[int(found[0])] == expected


def test_many_stacks_at_once_tell_what_each_tells_alone() -> None:
    around, own = (
        bits.ravel() for bits in np.meshgrid(np.arange(0, 1 << 17, 61), np.arange(0, 1 << 17, 977))
    )

    assert deeper(around, own).tolist() == [
        deeper(a, b) for a, b in zip(around.tolist(), own.tolist(), strict=True)
    ]
    assert (evidence("entry_SYSCALL_64", "kernel"), evidence("take_gil", "python")) == (
        0,
        WORK | PYTHON,
    )


def test_a_thread_that_could_run_waits_for_a_cpu_whatever_it_does() -> None:
    assert state(FUTEX, "take_gil", preempted=True) == "preempted"
