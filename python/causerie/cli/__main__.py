"""`python -m causerie.cli` is the command `causerie`."""

from __future__ import annotations

import sys

from causerie.cli.app import main

sys.exit(main())
