"""Changes to another folder and removes the one it started in."""

import os
import tempfile

from facts import show, work

old = os.getcwd()
work(50)
new = os.path.join(tempfile.gettempdir(), "layerscope-test-elsewhere")
os.makedirs(new, exist_ok=True)
os.chdir(new)
os.rmdir(old)
work(50)
show()
os.rmdir(new)
os.mkdir(old)
