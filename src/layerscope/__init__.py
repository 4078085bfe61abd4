"""layerscope: the across-the-stack profiler for deep-learning programs on Linux.

Importing it is cheap: no framework, no reader library is imported before it is needed.
"""

__version__ = "0.1.0"
