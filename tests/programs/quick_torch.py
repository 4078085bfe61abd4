"""Imported before torch by programs that only run operators as they are: half a second of CPU time less, and more
where there is an optimizer or a profiler. Left out is what only compilers ask for.
"""

import gc
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace


class LastOfTorch:
    """Stands for how operators would work on tensors without data, which torch imports nearly at the end."""

    name = "torch._meta_registrations"

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == self.name else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        sys.meta_path.remove(self)
        import torch

        # As what is left out does: without it there are no generators of random numbers.
        if hasattr(torch._C, "_set_generator_metaclass"):
            from torch._opaque_base import OpaqueBaseMeta

            torch._C._set_generator_metaclass(OpaqueBaseMeta)
        gc.enable()


def left_out(name, **there):
    """A module of torch in which there is nothing else."""
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(there)
    return module


def as_it_is(function=None, *_, **__):
    """As a decorator it changes nothing."""
    return function or as_it_is


gc.disable()  # until torch is there
sys.meta_path.insert(0, LastOfTorch())
left_out("torch.export")
left_out(
    "torch._dynamo",
    graph_break=lambda: None,
    disable=as_it_is,
    config=SimpleNamespace(error_on_nested_fx_trace=True),
)
config = left_out("torch._inductor.config", triton=SimpleNamespace(cudagraphs=False))
left_out("torch._inductor", config=config)
