"""Reads a recording while it grows, for `layerscope top`: sums of what is new, without tables.

Times, nesting, names of functions and reasons of waits are those of the conversion, made by the
same code; what needs a whole epoch (links, modules, phases) is left to that.
"""
