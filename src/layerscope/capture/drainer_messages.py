"""The words in the messages between the session and the drainer."""

# The type of the last one. A socket that ends without it means that the session was killed.
END = "end"
# What somebody outside of the program asks for: that the window is open until `until_ns` (null:
# without end, 0: it is closed), or a mark. Each has a `number`, which comes back when it is done.
WINDOW, MARK = "window", "mark"
DONE = "done"
