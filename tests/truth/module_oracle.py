"""Says which operators belong to which module, without layerscope: by torch.profiler, by a
`Module.__call__` of its own, and by the sequence numbers that autograd gives out while a module
runs.

usage: module_oracle.py NAME, of networks.py. Prints {path: {name: count}} as JSON, or says that its
profiler sees too little and exits with status 3: an old one sees the thread that started it and
those of the backward pass, or microseconds.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "programs")]
import networks  # noqa: E402
import quick_torch  # noqa: E402, F401
import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

OUTSIDE = "outside any module"
OF_SEVERAL_THREADS = ("two_threads", "backward_elsewhere")
ENTER, LEAVE = "enter ", "leave "
ENGINE = "autograd::engine::evaluate_function: "

kept: list[Any] = []  # so that no address is used again
path_of: dict[int, str] = {}
open_calls = threading.local()
original = torch.nn.Module.__call__


def mark(what: str) -> Any:
    """A range whose name says what happened and which sequence number comes next."""
    opened = torch._C._profiler._RecordFunctionFast(f"{what}|{torch.autograd._get_sequence_nr()}")
    opened.__enter__()
    return opened


def path_here(module: Any, stack: list[str]) -> str:
    """The path of a module that is called inside the ones of `stack`."""
    if id(module) not in path_of:
        kept.append(module)
        around = f"{stack[-1]}.({type(module).__name__})" if stack else type(module).__name__
        for name, inner in module.named_modules(prefix=around):
            path_of.setdefault(id(inner), name)
    return path_of[id(module)]


def call(module: Any, *arguments: Any, **more: Any) -> Any:
    """`Module.__call__` that marks its begin and its end."""
    stack = open_calls.__dict__.setdefault("stack", [])
    stack.append(path_here(module, stack))
    opened = mark(ENTER + stack[-1])
    try:
        return original(module, *arguments, **more)
    finally:
        mark(LEAVE + stack.pop()).__exit__(None, None, None)
        opened.__exit__(None, None, None)


def numbers(events: list[Any]) -> dict[int, list[tuple[int, str]]]:
    """By thread: from which sequence number on nodes are made in which module, in the order of the
    numbers.
    """
    found: dict[int, list[tuple[int, str]]] = {}
    stacks: dict[int, list[str]] = collections.defaultdict(lambda: [OUTSIDE])
    for event in events:
        name, _, number = event.name().rpartition("|")
        stack = stacks[event.start_thread_id()]
        if name.startswith(ENTER):
            stack.append(name.removeprefix(ENTER))
        elif name.startswith(LEAVE):
            stack.pop()
        else:
            continue
        found.setdefault(event.start_thread_id(), [(0, OUTSIDE)]).append((int(number), stack[-1]))
    return found


def count(events: list[Any]) -> dict[str, dict[str, int]]:
    """Operators by module and name."""
    made_in = numbers(events)
    counts: dict[str, dict[str, int]] = collections.defaultdict(collections.Counter)
    stacks: dict[int, list[tuple[int, str, bool]]] = collections.defaultdict(
        list
    )  # end, module, backward
    last: dict[tuple[int, int], str] = collections.defaultdict(lambda: OUTSIDE)
    nodes = {
        (event.start_thread_id(), event.start_ns()): event
        for event in events if event.fwd_thread_id() and event.sequence_nr() >= 0
    }  # fmt: skip
    for event in events:
        name, thread = event.name(), event.start_thread_id()
        stack = stacks[thread]
        while stack and stack[-1][0] <= event.start_ns():
            stack.pop()
        module = stack[-1][1] if stack else OUTSIDE
        if name.startswith(LEAVE):
            continue
        if name.startswith(ENTER):
            module = name.removeprefix(ENTER).rpartition("|")[0]
        elif name.startswith(ENGINE):
            level = thread, sum(backward for _, _, backward in stack)
            if "AccumulateGrad" not in name:
                inside = [
                    node for (on, at), node in nodes.items()
                    if on == thread and event.start_ns() <= at <= event.end_ns()
                ]  # fmt: skip
                first = min(inside, key=lambda node: node.start_ns(), default=None)
                if first is not None:
                    owners = made_in.get(first.fwd_thread_id(), [(0, OUTSIDE)])
                    module = [owner for number, owner in owners if number <= first.sequence_nr()][
                        -1
                    ]
                last[level] = module
            else:
                module = last[level]
        if not name.startswith(ENTER):
            counts[module][name] += 1
        stack.append((event.end_ns(), module, name.startswith(ENGINE)))
    return counts


def main() -> None:
    """Run the network under the profiler."""
    torch.nn.Module.__call__ = call
    if not hasattr(torch._C._autograd._KinetoEvent, "start_ns"):
        print(
            f"the profiler of PyTorch {torch.__version__} tells times in microseconds only",
            file=sys.stderr,
        )
        sys.exit(3)
    try:
        everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        if sys.argv[1] in OF_SEVERAL_THREADS:
            print(
                f"the profiler of PyTorch {torch.__version__} sees one thread only", file=sys.stderr
            )
            sys.exit(3)
        everywhere = None
    with profile(activities=[ProfilerActivity.CPU], experimental_config=everywhere) as profiled:
        networks.main(sys.argv[1])
    events = sorted(
        profiled.profiler.kineto_results.events(),
        key=lambda event: (event.start_ns(), -event.end_ns()),
    )
    json.dump(count(events), sys.stdout)


if __name__ == "__main__":
    main()
