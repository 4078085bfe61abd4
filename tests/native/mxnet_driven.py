"""A stand-in for MXNet's library, and what drives the agent in it."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.native.building import build
from tests.native.driven import Drive, Driven

FAKE_MXNET = Path(__file__).parent / "fake_mxnet.c"
# That of the wheel of MXNet 2.0.0b1 for Linux.
KNOWN, UNKNOWN = (
    "253f6e82c9aa7c1924a1309ab42b273c9afc0816",
    "00112233445566778899aabbccddeeff00112233",
)
LOAD = """
mxnet = ctypes.CDLL(FAKE_MXNET)
for call in (mxnet.fake_execute, mxnet.fake_push, mxnet.fake_push_cached, mxnet.fake_delete, mxnet.fake_submit):
    call.restype = ctypes.c_uint64
mxnet.fake_operator.restype = ctypes.c_void_p
mxnet.fake_operator.argtypes = mxnet.fake_enter.argtypes = [ctypes.c_void_p]
mxnet.fake_submit.argtypes = mxnet.fake_run_operator.argtypes = [ctypes.c_void_p]
mxnet.fake_uses.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
mxnet.fake_wait.restype = ctypes.c_uint64
arrived = ctypes.c_uint64.in_dll(mxnet, "fake_arrived")
vtable = (ctypes.c_void_p * 6).in_dll(mxnet, "fake_vtable")
before = list(vtable)
assert prepare() == 0
code = agent.ls_mxnet_start(FAKE_MXNET.encode(), 1)
"""
START = LOAD + "assert code == 0, code\n"


def fake(folder: Path, build_id: str, *flags: str) -> Path:
    """A stand-in for libmxnet.so with this build-id."""
    linking = ("-Wl,-z,lazy", f"-Wl,--build-id=0x{build_id}")
    return build(folder / "libmxnet.so", [FAKE_MXNET], "-O2", "-shared", "-fPIC", *linking, *flags)


def drive_with(drive: Drive, library: Path, first: str, lines: str) -> Driven:
    driven = drive(f"FAKE_MXNET = {str(library)!r}\n{first}{textwrap.dedent(lines)}")
    assert (driven.status, driven.stderr) == (0, "")
    return driven


MODULES = """
held = ctypes.PyDLL(AGENT)
held.ls_modules_start.argtypes = [ctypes.py_object, ctypes.py_object]
held.ls_module_learn.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

class Module:
    def __init__(self, path, work):
        self.path, self.work = path, work

    def __call__(self):
        return self.work()

def resolve(module, outer=None):
    held.ls_module_learn(id(module), f"{module.path}\\nModule\\n".encode())

assert held.ls_modules_start(Module.__dict__["__call__"], resolve) == 0

def run(name, *variables):
    it = mxnet.fake_operator(text(name))
    mxnet.fake_uses(it, bytes([*variables, 0]))
    mxnet.fake_submit(it)
    mxnet.fake_run_operator(it)

def backward(*operators):
    mxnet.fake_enter(text("MXAutogradBackwardEx"))
    for name, *variables in operators:
        run(name, *variables)
    mxnet.fake_exit()
"""
