"""Inside the program, where calls of MKL are wanted: has MKL write them to a file of ours, not to
standard output.

Standard library only. By MKL's own functions and not by its variables, so that the environment
stays as it is.
"""

import ctypes
import os


def watch(folder, torch):
    """Start in this process and its forks; code and reason why it cannot be, or None. `folder`:
    where the files go.
    """
    if os.environ.get("MKL_VERBOSE"):
        return "mkl_taken", "MKL_VERBOSE is set: MKL writes its calls where the user wants them"
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        library = ctypes.CDLL(path)
        write_to, be_verbose = library.mkl_serv_verbose_output_file, library.MKL_Verbose
    except (OSError, AttributeError):
        return (
            "no_mkl",
            "this PyTorch has no MKL in it, or one that cannot write its calls to a file",
        )
    write_to.argtypes, be_verbose.argtypes = [ctypes.c_char_p], [ctypes.c_int]

    def name_file():
        # A fork inherits the file of its parent.
        write_to(os.fsencode(f"{folder}/mkl-{os.getpid()}.log"))

    name_file()
    be_verbose(1)
    os.register_at_fork(after_in_child=name_file)
    return None
