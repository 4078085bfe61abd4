"""`python -m layerscope` is `layerscope`."""

import sys

from layerscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
