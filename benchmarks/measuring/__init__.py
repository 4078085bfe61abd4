"""What the benchmarks share: running programs with and without layerscope, watching, statistics,
reports.
"""
