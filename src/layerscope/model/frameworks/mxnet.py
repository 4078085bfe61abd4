"""MXNet: how it names its operators, and how the agent names its optimizers and loaders."""

from __future__ import annotations

from layerscope.model.framework import PLAIN_OPERATOR, Anchor, Framework, PublicNames

# Of a gluon.Trainer or a Module, and the optimizer that it has (native/frameworks/mxnet/methods.c).
_STEP = "Optimizer.update#"
_PUBLIC = PublicNames(
    spans=(
        r"Optimizer\.update#\w+\.\w+",
        r"\w*(DataLoader|Iter|IterV1)\.__next__",
        r"MX[A-Z]\w+",
    ),
    libraries=("libmxnet",),
    packages=("mxnet",),
)

FRAMEWORK = Framework(
    name="mxnet",
    title="MXNet",
    kinds=(
        ("optimizer", f"{_STEP}*"),
        ("loader", "*DataLoader.__next__"),
        ("loader", "*Iter.__next__"),
        ("loader", "*IterV1.__next__"),
    ),
    step_prefix=_STEP,
    # The calls of the C interface that run a backward pass; its operators are like all others.
    backward_prefixes=("MXAutogradBackward", "MXExecutorBackward"),
    anchors=(
        Anchor(
            "native",
            r"mxnet::engine::(ThreadedEngine::ExecuteOprBlock|NaiveEngine::PushAsync)",
            "operators",
            PLAIN_OPERATOR,
        ),
    ),
    environment=("MXNET_", "DMLC_"),
    # The second: "Convolution,Activation", in later versions "Convolution{pad=[0,0]},Activation{}".
    bulks=(
        (r"ImperativeBulk", "ImperativeBulk"),
        (r"\w+(\{[^{}]*\})?,.*", "a name that lists operators"),
    ),
    library=r"libmxnet\.so",
    custom_code="::pure_python",
    calls_category="MXNET_C_API",
    storage_category="Device Storage",
    storage_track="MXNet",
    storage_counter=r"memory_bytes of (\w+)\((\d+)\)",
    public=_PUBLIC,
)
