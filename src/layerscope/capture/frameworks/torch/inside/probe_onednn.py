"""Run by the program's own Python in a throw-away process: oneDNN prints who it is when it is first
used.

usage: probe_onednn.py SITE_PACKAGES, with ONEDNN_VERBOSE=1
"""

import sys

sys.path[0] = sys.argv[1]  # the folder of this script is not for torch to import from
import torch  # noqa: E402

# PyTorch does smaller convolutions itself.
torch.nn.functional.conv2d(torch.ones(2, 16, 32, 32), torch.ones(16, 16, 3, 3))
