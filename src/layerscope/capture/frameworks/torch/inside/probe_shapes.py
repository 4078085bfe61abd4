"""Run by the program's own Python in a throw-away process: does what was compiled read the inputs
of operators rightly?

Known tensors go through operators, and what is recorded must be what Python says of them. Prints
one line of JSON: `why` it may not be used (empty: it may), and `cost_ns`, the CPU time that shapes
add to one operator.

usage: probe_shapes.py AGENT LIBTORCH_CPU SITE_PACKAGES SHAPES
"""

import ctypes
import json
import sys
import time
import warnings

agent_path, library, package, shapes = sys.argv[1:5]
sys.path[0] = package  # the folder of this script is not for torch to import from
import torch  # noqa: E402

warnings.simplefilter("ignore")
agent = ctypes.CDLL(agent_path)
agent.ls_probe_arguments.restype = ctypes.c_char_p
agent.ls_probe_arguments.argtypes = [ctypes.c_uint32]
CALLS, ROUNDS = 200, 31


def record():
    """Start recording into a ring of our own, emptied."""
    if agent.ls_probe_record(library.encode(), -1, 0):
        raise SystemExit("the agent does not start")


def arguments(work):
    """What is recorded of the operators that `work` calls, by the order of their ends."""
    record()
    work()
    found = []
    while True:
        text = agent.ls_probe_arguments(len(found))
        if text is None:
            break
        found.append(json.loads(text.decode()) if text else None)
    agent.ls_operators_stop()
    return found


def described(*inputs):
    """What should be recorded of `inputs`: tensors, lists of them, scalars, None."""
    return {"shapes": [shape(one) for one in inputs], "dtypes": [dtype(one) for one in inputs]}


def shape(one):
    """As `shapes` has it."""
    if isinstance(one, list):
        return [shape(each) for each in one]
    if not isinstance(one, torch.Tensor):
        return None
    return "?" if one.is_nested else list(one.shape)


def dtype(one):
    """As `dtypes` has it."""
    if isinstance(one, list):
        return [dtype(each) for each in one]
    if isinstance(one, torch.Tensor):
        return str(one.dtype).rpartition(".")[2]
    return None if one is None else type(one).__name__


def dtypes():
    """Every dtype that this torch has, once."""
    named = [getattr(torch, name) for name in dir(torch)]
    return sorted({one for one in named if isinstance(one, torch.dtype)}, key=str)


def cases():
    """(what is called, what must be among what is recorded)."""
    x, y = torch.ones(2, 3), torch.ones(3, dtype=torch.float64)
    yield lambda: x.mul(y), described(x, y)
    for tensor in (
        torch.ones(()),
        torch.ones(0, 4),
        torch.ones(1, 2, 3, 4, 5, 6, 7),
        torch.ones(1).expand(1 << 40),
    ):
        yield tensor.detach, described(tensor)
    several = [x, torch.ones(1, 3), x]
    yield lambda: torch.cat(several, 0), described(several, 0)
    yield lambda: x.add(x, alpha=2), described(x, x, 2)
    yield lambda: torch.clamp(x, 0.5, None), described(x, 0.5, None)
    yield lambda: torch.sum(x, dim=[0], keepdim=True), described(x, None, True, None)
    index = torch.tensor([1, 0])
    yield lambda: torch.ops.aten.index(x, [None, index]), described(x, [None, index])
    yield (
        lambda: torch.nn.functional.linear(x, torch.ones(5, 3)),
        described(x, torch.ones(5, 3), None),
    )
    sparse = torch.ones(2, 2).to_sparse()
    yield sparse.neg, described(sparse)
    if hasattr(torch, "nested"):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        yield nested.detach, described(nested)
    for kind in dtypes():
        try:
            tensor = torch.empty(2, dtype=kind)
            tensor.detach()
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # there are no such tensors on the CPU
        yield tensor.detach, described(tensor)


def first_wrong():
    """What is recorded wrongly; empty: nothing."""
    for work, wanted in cases():
        found = arguments(work)
        if wanted not in found:
            return f"not {json.dumps(wanted)} but {json.dumps(found)}"[:300]
    return ""


def cost_ns():
    """CPU time that shapes add to one operator of two small tensors, torch's own work for them
    included.
    """
    x, y = torch.rand(8), torch.rand(8)
    times = {True: [], False: []}
    for i in range(2 * ROUNDS):
        with_shapes = i % 2 == 0
        agent.ls_shapes_pause(not with_shapes)
        record()
        begin = time.thread_time_ns()
        for _ in range(CALLS):
            x.add(y)
        times[with_shapes].append((time.thread_time_ns() - begin) / CALLS)
        agent.ls_operators_stop()
    middle = {key: sorted(values)[ROUNDS // 2] for key, values in times.items()}
    return max(middle[True] - middle[False], 0.0)


torch.set_num_threads(1)
if agent.ls_shapes_use(shapes.encode()):
    print(json.dumps({"why": "it does not load beside this PyTorch", "cost_ns": 0}))
else:
    print(json.dumps({"why": first_wrong(), "cost_ns": cost_ns()}))
