"""Our own raw files as a source: one file for each kind of record."""
