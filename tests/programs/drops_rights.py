"""Becomes another user before it imports torch, as a server does."""

import ctypes
import os

KEEP_CAPABILITIES, READ_ALL_FILES = 8, 1 << 2

# This Python may lie where only its owner can read: the new user keeps the right to read, and no other.
libc = ctypes.CDLL(None)
libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
os.setgid(65534)
os.setuid(65534)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
libc.capset(header, (ctypes.c_uint32 * 6)(READ_ALL_FILES, READ_ALL_FILES, 0, 0, 0, 0))

from facts import show, work  # noqa: E402

work()
show()
