"""TensorFlow, of which its libraries are recorded alone."""

from __future__ import annotations

from layerscope.model.framework import Framework, PublicNames

FRAMEWORK = Framework(
    name="tensorflow",
    title="TensorFlow",
    environment=(),  # Terraform has the same beginning: model/secrets.py has its names
    public=PublicNames(libraries=("libtensorflow_framework",), packages=("tensorflow",)),
)
