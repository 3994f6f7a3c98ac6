"""The command `causerie`: chat in a terminal, look after model files, and say what this installation can do."""

from __future__ import annotations

from causerie.cli.app import main

__all__ = ["main"]
