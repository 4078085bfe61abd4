"""PyTorch: how it names its operators, backward functions, optimizers and loaders."""

from __future__ import annotations

from layerscope.model.framework import Anchor, Backends, Framework, PublicNames

# torch.autograd.Engine::evaluate_function announces each backward function by such a span.
_ENGINE = "autograd::engine::evaluate_function"
# torch.optim.Optimizer.profile_hook_step and zero_grad.
_STEP, _ZERO_GRAD = "Optimizer.step#", "Optimizer.zero_grad#"
# torch.utils.data._BaseDataLoaderIter._profile_name.
_NEXT_BATCH = "enumerate(*)#*.__next__*"

_BACKENDS = Backends(
    prefix="aten::",
    title="ATen",
    products=frozenset(
        (
            "aten::_addmm_activation",
            "aten::addbmm",
            "aten::addmm",
            "aten::addmv",
            "aten::baddbmm",
            "aten::bmm",
            "aten::dot",
            "aten::mm",
            "aten::mv",
            "aten::vdot",
        )
    ),
    routines=(
        (r"[SDCZ]GEMM\(", ("aten::mm", "aten::addmm")),
        (r"[SDCZ]GEMM_BATCH\w*\(", ("aten::bmm", "aten::baddbmm")),
        (r"[SDCZ]GEMV\(", ("aten::addmv_", "aten::addmv")),
        (r"[SDCZ]DOT\w*\(", ("aten::dot", "aten::vdot")),
    ),
    convolutions=(
        r"aten::_?(slow_|thnn_)?conv(olution|_transpose|_depthwise)?\d?d?(_forward|_backward)?$"
    ),
    convolutions_by_onednn=(
        r"(?=.*mkldnn)(aten|mkldnn)::_?(mkldnn_)?convolution(_transpose)?(_pointwise.*)?$"
    ),
    convolutions_by_others=(
        (r"aten::cudnn_convolution\w*$", "cuDNN"),
        (r"aten::miopen_convolution\w*$", "MIOpen"),
    ),
    products_by_onednn=r"(aten::mkldnn_|mkldnn::_?)linear(_pointwise.*)?$",
    has_primitive=r"conv|pool|batch_norm|layer_norm|softmax|relu|gelu|lstm|gru",
    calls_others=(
        r"aten::(conv\dd|conv_transpose\dd|_?convolution|batch_norm|layer_norm|softmax|log_softmax)$"
    ),
    onednn_switch="torch.backends.mkldnn.enabled",
)
_PUBLIC = PublicNames(
    spans=(
        r"ProfilerStep#\d+",
        r"Optimizer\.(?:step|zero_grad)#\w+\.\w+",
        r"enumerate\(DataLoader\)#\w+\.__next__",
        r"DistributedDataParallel\.forward",
        r"torch\.distributed\.ddp\.reducer::\w+",
        r"FullyShardedDataParallel\.\w+",
        r"FSDP::\w+",
        r"c10d:\w+",
        r"Torch-Compiled Region(?:: \d+/\d+)?",
        r"CompiledFunction(?:Backward)?",
        "TorchDynamo Cache Lookup",
        "Pregraph bytecode",
        "AOTDispatcher Runtime Wrapper Prologue",
    ),
    tracks=(r"pt_[a-z_]+\d*",),
    libraries=("libtorch", "libc10"),
    packages=("torch",),
)
# The namespaces of what PyTorch itself registers.
_OWN_NAMESPACES = "|".join(
    (
        "_?aten",
        "_?c10d_functional(?:_autograd)?",
        "_?dtensor",
        "_?quantized(?:_decomposed)?",
        "autograd",
        "c10d",
        "c10",
        "cuda",
        "debugprims",
        "dist_autograd",
        "export",
        "flex_lib",
        "fsdp",
        "FSDP",
        "higher_order",
        "inductor",
        "internal",
        "metal",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "onednn",
        "onnx",
        "prepacked",
        "prims?",
        "profiler",
        "quantization",
        "rngprims",
        "rpc",
        "sparse",
        "static_runtime",
        "streams",
        "symm_mem",
        "torch",
        "torch_attn",
        "vulkan_prepack",
        "xnnpack",
    )
)
# What it announces by a name without a namespace, like a subclass of torch.autograd.Function.
_OWN_NAMES = "detach_?|forward|pin_memory|record_param_comms|CompiledFunction(?:Backward)?"
_CUSTOM = (
    # The operators of torch.library and TORCH_LIBRARY.
    rf"(?!(?:{_OWN_NAMESPACES})::)\w+::\w+",
    # Subclasses of torch.autograd.Function, and their backward functions; those of PyTorch's own
    # operators end in a number.
    rf"(?!(?:{_OWN_NAMES})$)[^\W\d]\w*(?<!Backward\d)(?<!Backward\d\d)",
    r"torch::autograd::CppNode<.*",
)

FRAMEWORK = Framework(
    name="torch",
    title="PyTorch",
    kinds=(
        ("backward", f"{_ENGINE}*"),
        ("optimizer", f"{_STEP}*"),
        ("optimizer", f"{_ZERO_GRAD}*"),
        ("loader", _NEXT_BATCH),
    ),
    step_prefix=_STEP,
    backward_prefixes=(_ENGINE,),
    gradient_seed="aten::ones_like",
    gradient_sum="AccumulateGrad",
    iterator_seed="aten::random_",
    allocators=(
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::resize_",
        "aten::resize_as_",
    ),
    sampler_operators=frozenset(
        (
            "aten::_local_scalar_dense",
            "aten::empty",
            "aten::item",
            "aten::multinomial",
            "aten::randint",
            "aten::random_",
            "aten::randperm",
            "aten::resize_",
            "aten::resolve_conj",
            "aten::resolve_neg",
            "aten::scalar_tensor",
        )
    ),
    anchors=(
        Anchor(
            "native",
            r"torch::autograd::Engine::evaluate_function",
            "operators",
            r"autograd::engine::evaluate_function: ",
        ),
        Anchor(
            "native",
            r"torch::autograd::Node::operator\(\)",
            "operators",
            r"(torch::autograd::)?\w*(Backward\d*|Grad)$",
        ),
        # Any operator that somebody listens to goes through the slow path of the dispatcher.
        Anchor(
            "native",
            r"c10::Dispatcher::callWithDispatchKeySlowPath",
            "operators",
            r"\w+::\w+$",
        ),
        Anchor("python", r"Module\._wrapped_call_impl", "modules"),
    ),
    # `Module._wrapped_call_impl` and `Module._call_impl`.
    module_calls=(("_call_impl", "torch/nn/modules/module.py"),),
    collectives=(
        (
            "python",
            r"^(?!_|destroy|get_|is_|new_)\w+$",
            "torch/distributed/distributed_c10d.py",
            "",
        ),
        ("native", r"^c10d::Reducer::", "", "gradient reduction"),
    ),
    environment=("PYTORCH_", "TORCHELASTIC_", "TORCHINDUCTOR_", "TORCH_"),
    library=r"libtorch(_cpu|_cuda|_hip)?\.so",
    custom_operators=_CUSTOM,
    backends=_BACKENDS,
    public=_PUBLIC,
)
