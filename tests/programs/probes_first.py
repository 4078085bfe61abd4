"""Looks whether torch is there, in two ways, before it imports it."""

import importlib.machinery
import importlib.util
import pkgutil
import sys

spec = importlib.util.find_spec("torch")
print(type(spec.loader), isinstance(spec.loader, importlib.machinery.SourceFileLoader), spec.origin)
print(spec.loader.is_package("torch"), spec.loader.get_filename("torch"), "torch" in sys.modules)
print(pkgutil.get_loader("torch").path if sys.version_info < (3, 12) else "", sorted(vars(spec.loader)) != [])

from facts import show, work  # noqa: E402

work()
show()
