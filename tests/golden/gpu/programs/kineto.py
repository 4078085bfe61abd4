"""Makes small traces of torch.profiler on a GPU, and beside each what is known of it from elsewhere.

    python3 kineto.py FOLDER [CASE ...]

For each case FOLDER/CASE.json is the trace as torch writes it, FOLDER/CASE.truth.json has
`launched`, what the program launched by its construction; `averages`, what torch.profiler itself
adds up; `event_ms`, the time between two CUDA events around each step; and `around`, readings of
CLOCK_MONOTONIC and CLOCK_REALTIME just before a kernel was launched and just after it had ended.
"""

import json
import sys
import time
from ctypes import CDLL, c_void_p
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

STEPS = 3
BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def readings():
    """CLOCK_MONOTONIC, CLOCK_REALTIME and CLOCK_MONOTONIC again, in ns."""
    return [
        time.clock_gettime_ns(clock)
        for clock in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME, time.CLOCK_MONOTONIC)
    ]


def around(use):
    """The readings before `use` and after the GPU has done all of it."""
    before = readings()
    use()
    torch.cuda.synchronize()
    return [before, readings()]


def timed(step, steps=STEPS):
    """`step` is called with each number; the time of each by events of CUDA, in ms."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for number in range(steps):
        step(number)
        marks[number + 1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(marks)]


def loaded_runtime():
    """The library of CUDA's runtime that torch has loaded."""
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "libcudart.so" in line}
    return CDLL(paths.pop())


def network():
    """A multi-layer perceptron, its optimizer and a batch on the host."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    return net, optimizer, torch.randn(32, 64).pin_memory(), torch.randint(10, (32,)).pin_memory()


def train(net, optimizer, x, y):
    """One step of training."""
    x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def steps(profiled):
    """Training with profiler steps, shapes and memory."""
    net, optimizer, x, y = network()
    train(net, optimizer, x, y)
    torch.cuda.synchronize()

    def step(number):
        train(net, optimizer, x, y)
        running.step()

    with profiled(record_shapes=True, profile_memory=True) as running:
        event_ms = timed(step)
    launched = {
        "ProfilerStep": STEPS,
        "aten::linear": 2 * STEPS,
        "gpu_memcpy HtoD": 2 * STEPS,
        "gpu_memcpy DtoH": STEPS,
        "aten::add_ of the optimizer": 4 * STEPS,
    }
    return running, {"launched": launched, "event_ms": event_ms}


def stacks(profiled):
    """The same with functions of Python and modules."""
    net, optimizer, x, y = network()
    train(net, optimizer, x, y)
    torch.cuda.synchronize()
    with profiled(with_stack=True, with_modules=True) as running:
        event_ms = timed(lambda number: train(net, optimizer, x, y), 2)
    return running, {"launched": {"train": 2, "aten::linear": 4}, "event_ms": event_ms}


def graphs(profiled):
    """A graph of five kernels, replayed three times."""
    x = torch.ones(1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            x.add_(1)
    torch.cuda.synchronize()
    with profiled() as running:
        event_ms = timed(lambda number: graph.replay())
    return running, {
        "launched": {"cudaGraphLaunch": STEPS, "kernels": 5 * STEPS},
        "event_ms": event_ms,
        "value": x[0].item(),
    }


def triton(profiled):
    """A function that torch.compile has made one Triton kernel of, beside one that stays eager."""
    x = torch.randn(4096, device="cuda")
    compiled = torch.compile(lambda x: (x.sin() + x.cos()).relu() * 2)
    compiled(x)
    x.exp()
    torch.cuda.synchronize()

    def step(number):
        compiled(x)
        x.exp()

    with profiled(record_shapes=True) as running:
        event_ms = timed(step)
    return running, {
        "launched": {"triton kernels": STEPS, "aten::exp": STEPS, "kernels": 2 * STEPS},
        "event_ms": event_ms,
    }


def ranges(profiled):
    """Ranges of record_function and of NVTX, copies in all directions, memory that is set."""
    size = 1 << 20
    host, back = torch.ones(size // 4).pin_memory(), torch.empty(size // 4).pin_memory()
    a, b = torch.empty(size // 4, device="cuda"), torch.empty(size // 4, device="cuda")
    zeros = torch.empty(size, dtype=torch.uint8, device="cuda")
    runtime = loaded_runtime()
    torch.cuda.synchronize()

    def step(number):
        with record_function(f"copies {number}"), torch.cuda.nvtx.range("nvtx copies"):
            a.copy_(host, non_blocking=True)
            b.copy_(a)
            back.copy_(b, non_blocking=True)
        with record_function("inner"), record_function("innermost"):
            address, stream = zeros.data_ptr(), torch.cuda.current_stream().cuda_stream
            failed = runtime.cudaMemsetAsync(c_void_p(address), 0, size, c_void_p(stream))
            assert not failed
            torch.cuda.nvtx.mark("a mark")

    with profiled() as running:
        event_ms = timed(step)
    return running, {
        "launched": {
            "gpu_memcpy HtoD": STEPS,
            "gpu_memcpy DtoD": STEPS,
            "gpu_memcpy DtoH": STEPS,
            "gpu_memset": STEPS,
            "bytes of each": size,
        },
        "event_ms": event_ms,
    }


def streams(profiled):
    """Two streams that wait for each other, from two threads of the autograd engine and one of
    ours; with what the profiler says of waits for streams.
    """
    from torch._C._profiler import _ExperimentalConfig

    a = torch.randn(512, 512, device="cuda", requires_grad=True)
    b = torch.randn(512, 512, device="cuda")
    (a @ b).sum().backward()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    def step(number):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            c = a @ b
        d = b.relu()
        torch.cuda.current_stream().wait_stream(side)
        (c + d).sum().backward()
        side.synchronize()

    config = _ExperimentalConfig(enable_cuda_sync_events=True)
    with profiled(experimental_config=config) as running:
        event_ms = timed(step)
    return running, {
        "launched": {"side stream kernels, at least": STEPS, "aten::relu": STEPS},
        "event_ms": event_ms,
    }


def clock(profiled):
    """One short kernel at a time, with both clocks read around it."""
    x = torch.ones(1024, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    with profiled() as running:
        x.mul_(1)
        torch.cuda.synchronize()
        found = [around(lambda: x.add_(1)) for _ in range(100)]
    return running, {"launched": {"aten::add_": len(found), "aten::mul_": 1}, "around": found}


CASES = (steps, stacks, graphs, triton, ranges, streams, clock)


def averages(running):
    """What torch.profiler adds up: microseconds."""
    return [
        {
            "name": one.key,
            "count": one.count,
            "cpu_us": one.cpu_time_total,
            "self_cpu_us": one.self_cpu_time_total,
            "device_us": one.device_time_total,
            "self_device_us": one.self_device_time_total,
        }
        for one in running.key_averages()
    ]


def main(folder, *names):
    """Make the traces of these cases, or of all."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if names and case.__name__ not in names:
            continue
        running, truth = case(lambda **more: profile(activities=BOTH, **more))
        running.export_chrome_trace(f"{folder}/{case.__name__}.json")
        about = {
            "program": f"kineto.py {case.__name__}",
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(),
            **truth,
            "averages": averages(running),
        }
        Path(f"{folder}/{case.__name__}.truth.json").write_text(json.dumps(about, indent=1) + "\n")
        print(case.__name__, "done")


if __name__ == "__main__":
    main(*sys.argv[1:])
