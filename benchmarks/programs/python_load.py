"""Loads a model and makes a context with causerie; prints load seconds, context seconds, resident KiB."""

import re
import sys
import time
from pathlib import Path

from causerie import llama

start = time.perf_counter()
model = llama.Model(sys.argv[1])
loaded = time.perf_counter()
ctx = llama.Context(model, n_ctx=512, n_batch=512, n_threads=2)
ready = time.perf_counter()
resident = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
assert resident is not None
print(loaded - start, ready - loaded, resident[1])
