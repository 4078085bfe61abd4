"""toynet: how it names what it runs. A test puts this file into `model/frameworks`."""

from __future__ import annotations

from layerscope.model.framework import Backends, Framework

FRAMEWORK = Framework(
    name="toynet",
    title="Toynet",
    kinds=(("optimizer", "toy step *"), ("loader", "toy next batch")),
    step_prefix="toy step ",
    backends=Backends(prefix="toy::", title="Toynet"),
)
