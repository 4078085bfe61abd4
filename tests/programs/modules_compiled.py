"""What torch.compile, torch.fx, torch.export and torch.jit make of modules.

usage: modules_compiled.py eager|aot_eager|inductor|graphs
"""

import sys
import warnings

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

warnings.simplefilter("ignore")
x = torch.ones(3, 4)


class Block(nn.Module):
    """A part with a hook."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU()

    def forward(self, x):
        """Two modules and a function."""
        return self.act(self.fc(x)) + 1


class Breaks(nn.Module):
    """Cannot be one graph."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x):
        """Graph breaks between modules, and modules that Dynamo has not seen."""
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
            x = fresh(x)
        return x


@torch._dynamo.disable
def fresh(x):
    """Modules made here, outside of any graph."""
    return nn.Sequential(nn.Tanh(), nn.Identity())(x)


def compiled(backend):
    """Graphs, graph breaks and recompilations."""
    graphs = []

    def count(graph, inputs):
        graphs.append(graph.code)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    torch.manual_seed(0)
    whole, broken, hooked = Block(), Breaks(), Block()
    hooked.fc.register_forward_hook(lambda module, arguments, output: output * 2)
    hooked.register_forward_pre_hook(lambda module, arguments: (arguments[0] + 1,))
    whole(x)  # known before it is compiled
    fast = torch.compile(whole, backend=count, fullgraph=True)
    print(fast(x).sum().item(), fast(x[:2]).sum().item(), fast(torch.ones(5, 4)).sum().item())
    fast(x).sum().backward()
    print(whole.fc.weight.grad.sum().item())
    fast = torch.compile(broken, backend=count)
    print([fast(x).sum().item() for _ in range(3)])
    broken.eval()
    print(fast(x).sum().item())
    fast = torch.compile(hooked, backend=count)
    print([fast(x).sum().item() for _ in range(3)])
    inside = torch.compile(lambda x: Block()(x) if x.shape[0] < 0 else hooked(whole(x)), backend=count)
    print(inside(x).sum().item())
    new = [nn.Tanh() for _ in range(4)]

    @torch.compile(backend=count)
    def many(x, n):
        return new[n](x)

    print([many(x, n).sum().item() for n in range(4)])
    print(len(graphs), graphs)
    for name, values in sorted(counters.items()):
        print(name, sorted(values.items()))


def graphs():
    """Graphs as text."""
    torch.manual_seed(0)
    model = Block()
    print(torch.fx.symbolic_trace(model).code)
    exported = torch.export.export(model, (x,))
    print(exported.graph, exported.module()(x).sum().item())
    traced = torch.jit.trace(model, x)
    print(traced.graph, traced.code, traced(x).sum().item())
    scripted = torch.jit.script(model)
    print(scripted.graph, scripted.code, scripted(x).sum().item(), scripted.fc.original_name)
    print(torch.fx.symbolic_trace(model)(x).sum().item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    graphs() if sys.argv[1] == "graphs" else compiled(sys.argv[1])
    nn.Sequential(nn.Tanh())(x)
