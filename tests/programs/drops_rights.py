"""Becomes another user before it imports torch, as a server does."""

import os

os.setgid(65534)
os.setuid(65534)

from facts import show, work  # noqa: E402

work()
show()
