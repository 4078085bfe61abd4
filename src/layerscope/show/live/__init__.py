"""Draws a program while it runs: the screen of `layerscope top`, as text and as JSON."""
