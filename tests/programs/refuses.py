"""Becomes a command for which the kernel refuses some system calls, as a container's seccomp profile does.

refuses.py NUMBER[,NUMBER...] ERRNO COMMAND...
"""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000

numbers = [int(word) for word in sys.argv[1].split(",")]
# The number of the call is the first word of what the filter sees.
code = [(LOAD_WORD, 0, 0, 0)]
for number in numbers:
    code += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | int(sys.argv[2]))]
code.append((RETURN, 0, 0, ALLOW))
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
packed = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
for request in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, MODE_FILTER, packed, 0, 0)):
    if libc.prctl(*request):
        sys.exit(f"no filter of system calls can be set here: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[3], sys.argv[3:])
