"""Optimizers import PyTorch's compiler, a second of CPU time: programs that are not about it begin
with this.
"""

from __future__ import annotations

WITHOUT_COMPILER = """import sys, types, torch
compiler = types.SimpleNamespace(graph_break=lambda: None, disable=lambda function, *_, **__: function)
torch._dynamo = sys.modules["torch._dynamo"] = compiler
"""
