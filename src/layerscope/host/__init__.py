"""Facts about this machine, read from a root path so that tests can give them another."""
