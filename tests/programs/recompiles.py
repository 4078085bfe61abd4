"""torch.compile compiles for new sizes and numbers, forgets everything, and is stopped."""

import torch
from torch._dynamo.callback import callback_handler

from layerscope import profiler

torch.set_num_threads(1)


@torch.compile(backend="eager", dynamic=False)
def scaled(values, factor):
    return (values * factor).sum()


scaled(torch.ones(2), 1)
scaled(torch.ones(3), 1)
scaled(torch.ones(3), 1)
scaled(torch.ones(3), 2)
torch._dynamo.reset()
scaled(torch.ones(4), 1)
print("while it runs", sorted(vars(callback_handler)))
profiler.set_state("stop")
print("stopped", sorted(vars(callback_handler)))
scaled(torch.ones(5), 1)
profiler.set_state("run")
seen = []
callback_handler.register_start_callback(lambda *arguments: seen.append("begins"))
callback_handler.register_end_callback(lambda *arguments: seen.append("ends"))
scaled(torch.ones(6), 1)
print(seen)
