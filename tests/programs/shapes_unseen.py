"""Prints all that a program could notice of somebody who looks at the inputs of its operators."""

import hashlib
import os
import threading
import weakref

import torch
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(3)
torch.set_num_threads(1)


def digest(*tensors):
    """Of all bits."""
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def train():
    """A few steps; the bits of what was learnt, and the random numbers after it."""
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.rand(9, 6)).square().sum().backward()
        optimizer.step()
    print("learnt", digest(*model.parameters()), torch.rand(1).item())


def storage_users(tensor):
    """How many hold its memory."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def memory():
    """When tensors and their memory go, and whose memory a gradient is."""
    x = torch.ones(100, 100)
    gone = []
    reference = weakref.ref(x, lambda _: gone.append(True))
    pieces = x.split(10)
    y = torch.cat([x, x]).add(1)
    print("users", storage_users(x), storage_users(y), len(pieces))
    del x, pieces
    print("gone", gone, reference() is None)
    w = torch.ones(3, requires_grad=True)
    seen = []
    (w * 2).sum().backward()
    w.grad = None
    product = w * 2
    product.register_hook(lambda gradient: seen.append(storage_users(gradient)))
    product.sum().backward()
    print("gradient", seen, storage_users(w.grad), w.grad.is_contiguous())
    alone = torch.ones(4, requires_grad=True)
    alone.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
    alone.exp().sum().backward()
    print("stolen", seen[-1] == alone.grad.data_ptr())


class Sized(torch.Tensor):
    """Computes its sizes in Python, and counts how often it is asked."""

    asked = 0

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dispatch_sizes_strides_policy="sizes")
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.size.default, torch.ops.aten.sym_size.default):
            cls.asked += 1
            return args[0].inner.shape
        return function(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))


def subclass():
    """No code of the program runs for what somebody looks at."""
    sized = Sized(torch.ones(2, 3))
    torch.cat([torch.relu(sized), torch.ones(1, 3)])
    print("asked", Sized.asked)


def errors():
    """Operators that fail."""
    for work in (lambda: torch.ones(2, 3).mm(torch.ones(2)), lambda: torch.cat([torch.ones(2), torch.ones(1, 1)])):
        try:
            work()
        except RuntimeError as error:
            print(type(error).__name__, str(error).splitlines()[0])


def compiled():
    """Graphs with numbers and with symbols for sizes."""
    counter = torch._dynamo.utils.counters

    @torch.compile(backend="aot_eager", dynamic=True)
    def work(x):
        return torch.nn.functional.gelu(x.reshape(-1) * x.shape[0]).sum()

    for rows in (3, 5, 8):
        x = torch.ones(rows, 4, requires_grad=True)
        work(x).backward()
        print("compiled", digest(x.grad), counter["stats"]["unique_graphs"])


def threads():
    """Backward passes at the same time, in a child too."""
    found = []

    def work(size):
        x = torch.ones(size, size, requires_grad=True)
        for _ in range(20):
            (x @ x).sum().backward()
        found.append(digest(x.grad))

    workers = [threading.Thread(target=work, args=(size,)) for size in (3, 4, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("threads", sorted(found))
    child = os.fork()
    if not child:
        print("child", digest(torch.arange(7.0).reshape(7, 1).expand(7, 2).cos()), flush=True)
        os._exit(0)
    print("parent", os.waitpid(child, 0)[1], flush=True)


def own_profiler():
    """The program's own profiler sees what it would see."""
    for shapes in (False, True):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes) as own:
            torch.ones(3, 4).mul(2).sum()
        events = own.events()
        print("profiled", len(events), [event.input_shapes for event in events if event.name == "aten::mul"])


for part in (train, memory, subclass, errors, compiled, threads, own_profiler):
    part()
    print(part.__name__, "done", flush=True)
