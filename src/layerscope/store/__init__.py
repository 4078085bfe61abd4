"""One recording = one folder: events in, columns out."""
