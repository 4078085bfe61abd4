"""The spans of a recording that is too large for a page to hold: columns in files, which are mapped
into memory, and what a page asks of them.

Each answer is what the page works out itself where it has all spans (web/src/data/whole_spans.ts).
"""
