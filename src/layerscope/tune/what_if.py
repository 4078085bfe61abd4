"""What changes the results of a program, and is therefore no setting: measured only on request, and
never the winner.

From outside only what a library reads from a variable can be changed. The rest is said, with what
to write instead.
"""

from __future__ import annotations

from layerscope.model.errors import UsageError
from layerscope.tune.setting import Setting

# oneDNN (ONEDNN_DEFAULT_FPMATH_MODE) and NVIDIA's libraries (NVIDIA_TF32_OVERRIDE) document these.
_BY_VARIABLE = {
    "bf16": Setting(
        "what if bf16",
        {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"},
        because="oneDNN computes in bfloat16 what is float32; operators that use other libraries "
        "do not",
    ),
    "tf32": Setting(
        "what if tf32",
        {"NVIDIA_TF32_OVERRIDE": "1"},
        because="NVIDIA's libraries compute float32 products in TF32",
    ),
}
_IN_THE_CODE = {
    "channels_last": "model.to(memory_format=torch.channels_last), and the same of its input",
    "compile": "model = torch.compile(model)",
    "autocast": 'with torch.autocast("cpu", torch.bfloat16): around the forward pass',
    "no_grad": "with torch.inference_mode(): around what is not trained",
}
NAMES = (*_BY_VARIABLE, *_IN_THE_CODE)


def settings(words: str) -> tuple[list[Setting], list[str]]:
    """What of the list `words` (bf16,compile) can be tried from outside, and sentences about what
    cannot.

    Raises UsageError for what there is not.
    """
    found, said = [], []
    for name in filter(None, (word.strip() for word in words.split(","))):
        if name in _BY_VARIABLE:
            found.append(_BY_VARIABLE[name])
        elif name in _IN_THE_CODE:
            said.append(
                f"{name} cannot be tried from outside of the program. In its code: "
                f"{_IN_THE_CODE[name]}."
            )
        else:
            raise UsageError(f"--what-if {name}: there are {', '.join(NAMES)}")
    return found, said
