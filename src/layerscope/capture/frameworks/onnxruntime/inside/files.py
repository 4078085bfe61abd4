"""Inside the program, run by path beside sessions.py: the files of models, and those that profilers
keep open. Standard library only.
"""

import os
import stat

ORT_FORMAT = b"ORTM"
SIZED = 2  # a kind of fields of a message
KINDS = {0: None, 1: 8, SIZED: None, 5: 4}  # how many bytes follow, where that is known
MOST_FIELDS = 10_000  # of a model that are looked at
LARGEST_VARINT = 10  # bytes


def has_whole_model(session):
    """Whether there is a model whose outermost fields end where it ends. ONNX Runtime says on
    stderr that a session without a model has no profile.
    """
    path = getattr(session, "_model_path", None)
    if not path:
        content = getattr(session, "_model_bytes", None) or b""
        return is_whole(lambda at, size: content[at : at + size], len(content))
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):  # a pipe is read by one
        return False
    with open(path, "rb", buffering=0) as file:
        return is_whole(lambda at, size: os.pread(file.fileno(), size, at), about.st_size)


def is_whole(read, size):
    """Whether fields of a message fill `size` bytes; `read(at, size)` gives some of them."""
    if read(4, 4) == ORT_FORMAT:
        return True
    at, fields = 0, 0
    while 0 <= at < size and fields < MOST_FIELDS:
        at += size_of_field(read(at, 2 * LARGEST_VARINT), size + 1)
        fields += 1
    return fields > 0 and at == size


def size_of_field(head, most):
    """How many bytes the field takes that begins with `head`; `most`: there is no such field."""
    tag, begin = varint(head, 0)
    kind = tag & 7
    if tag >> 3 == 0 or kind not in KINDS:
        return most
    if KINDS[kind] is not None:
        return begin + KINDS[kind]
    value, end = varint(head, begin)
    if end > len(head):
        return most
    return end + value if kind == SIZED else end


def varint(content, at):
    """A number of as many bytes as it needs, and where it ends: behind `content` if it is cut."""
    value = 0
    for count, byte in enumerate(content[at : at + LARGEST_VARINT]):
        value |= (byte & 127) << 7 * count
        if byte < 128:
            return value, at + count + 1
    return value, len(content) + 1


def descriptor_of(beginning):
    """The descriptor of the open file whose name begins so, and which file it is. The system knows
    it by a name without links, and so does who asks.
    """
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number).startswith(beginning):
                return int(number), identity(int(number))
        except OSError as error:
            if faults[1](error):  # noqa: F821 - the hook puts it here
                raise
    return None


def identity(descriptor):
    """Which file a descriptor leads to."""
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def is_open(known):
    """Whether a descriptor still leads to its file: the program may close what it does not know,
    and get the number for a file of its own.
    """
    try:
        return known is not None and identity(known[0]) == known[1]
    except OSError as error:
        if faults[1](error):  # noqa: F821
            raise
        return False


def write_nowhere(known):
    """In a child: what is written there does not reach the parent's file."""
    if is_open(known):
        nowhere = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, known[0], inheritable=False)
        os.close(nowhere)


def keep_for_good(handle):
    """Never free an object of ONNX Runtime: its end would be written."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
