"""layerscope as on a machine whose time stamp counter cannot be used: its arguments are layerscope's."""

import sys

from layerscope import cli
from layerscope.collect import session

# Run as a script: its own folder is nothing to import from.
sys.path.pop(0)
vars(session)["tsc_is_usable"] = lambda: False
sys.exit(cli.main())
