"""The words in the messages that the session sends to the drainer."""

# The type of the last one. A socket that ends without it means that the session was killed.
END = "end"
