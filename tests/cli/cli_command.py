"""How the tests start the command line."""

import sys

COMMAND = [sys.executable, "-m", "causerie.cli"]
