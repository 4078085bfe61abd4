"""layerscope as on a machine whose time stamp counter cannot be used: its arguments are
layerscope's.
"""

import sys

from layerscope.host import clock

# Run as a script: its own folder is nothing to import from. First of all, so that everybody finds
# the other answer.
sys.path.pop(0)
vars(clock)["tsc_is_usable"] = lambda: False

from layerscope import cli  # noqa: E402

sys.exit(cli.main())
