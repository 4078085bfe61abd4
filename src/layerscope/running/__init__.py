"""Processes as they are now, read from outside: what each thread does, and on whom it waits."""
