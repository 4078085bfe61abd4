"""The vocabulary: events, layers, clocks, and the tables of a recording. Imports nothing of
ours.
"""
