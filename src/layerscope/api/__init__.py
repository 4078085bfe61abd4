"""The library for questions about a recording: `open_run`, and the cell of a notebook."""
