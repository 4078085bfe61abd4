"""A `torch` of its own beside it, which warns and then fails while it is imported."""

import os
import sys

folder = os.path.abspath("own")
os.makedirs(os.path.join(folder, "torch"))
with open(os.path.join(folder, "torch", "__init__.py"), "w") as file:
    file.write("import warnings\nwarnings.warn('about the importer', stacklevel=2)\n")
    file.write(f"raise {sys.argv[1]}('does not load')\n")
sys.path.insert(0, folder)

import torch  # noqa: E402, F401
