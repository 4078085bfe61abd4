"""The bytes that `capture` writes and `sources` reads."""
