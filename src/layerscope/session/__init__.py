"""One recording from its start to the finished folder, and the requests of a running program."""
