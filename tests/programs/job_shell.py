"""A shell with job control, as far as a test needs one: runs a job in the foreground of its terminal,
continues it half a second after it was stopped, and says what happened to it on descriptor 3.
"""

import os
import signal
import sys
import time

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.close(3)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        os.write(3, b"ended %d\n" % os.waitstatus_to_exitcode(status))
        break
    os.write(3, b"stopped by %d\n" % os.WSTOPSIG(status))
    time.sleep(0.5)
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
