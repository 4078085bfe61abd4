"""One file per source that records while a program runs."""
