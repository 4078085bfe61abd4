"""Imported before torch by programs that only run operators as they are: half a second of CPU time less, and more
where there is an optimizer or a profiler. Left out is what only compilers ask for.
"""

import gc
import sys
from types import ModuleType, SimpleNamespace

was_enabled = gc.isenabled()
gc.disable()


def left_out(name, **there):
    """A module of torch in which there is nothing else."""
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(there)
    return module


def as_it_is(function=None, *_, **__):
    """As a decorator it changes nothing."""
    return function or as_it_is


left_out("torch.export")
left_out("torch._meta_registrations")  # how operators would work on tensors without data
left_out(
    "torch._dynamo",
    graph_break=lambda: None,
    disable=as_it_is,
    config=SimpleNamespace(error_on_nested_fx_trace=True),
)
config = left_out("torch._inductor.config", triton=SimpleNamespace(cudagraphs=False))
left_out("torch._inductor", config=config)

import torch  # noqa: E402

# As what is left out does: without it there are no generators of random numbers.
if hasattr(torch._C, "_set_generator_metaclass"):
    from torch._opaque_base import OpaqueBaseMeta

    torch._C._set_generator_metaclass(OpaqueBaseMeta)
if was_enabled:
    gc.enable()
