"""What an import leaves out until something needs it."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy
before = set(sys.modules)
import causerie.chat_model
import causerie.llama
from causerie import Conversation, Engine
print(*(name for name in ("asyncio", "ssl", "_hashlib", "multiprocessing", "http") if name in {*sys.modules} - before))
"""


def test_conversations_load_neither_an_event_loop_nor_openssl() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert not run.stdout.split()
