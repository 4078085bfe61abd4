"""Makes raw files while a program runs, and turns raw files into events."""
