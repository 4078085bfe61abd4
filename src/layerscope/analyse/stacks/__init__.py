"""Stacks of samples and trees of spans, merged into flame graphs and into tables of functions,
lines and symbols.

tree           stacks as arrays: merge, invert, add up
frames         which frames are the same, and what they are called
sample_reader  the tables frames, stacks and samples of a recording, and which samples are asked for
frame_filter   which layers of frames are shown; the others are part of the frame around them
imports        each import of a library as one frame
spans          the tree of operators and primitives: exact, from their spans
graphs         a flame graph: its tree, its total, what must be said beside it; two of them compared
flame_layout   which of its frames are drawn, and where
frame_rules    what becomes of each frame, for trees of samples that are chosen in a report
by_frame       functions, lines and symbols, with the error of sampling
innermost      of each stack its innermost line, module, operator and symbol; the lines of operators
"""
