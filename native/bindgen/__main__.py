"""Lets a build run the generator as ``python native/bindgen``, without installing it."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this directory on sys.path, but the package is found from its parent.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from bindgen.cli import main

    sys.exit(main())
