"""Renders each template of a JSON object {name: source} on stdin; prints a line [name, outcome, seconds, MiB] for each.

Before each it prints the name alone, so that whoever reads knows where the process ended.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from causerie import TemplateError
from causerie.llama import Template

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}] * 4


def render(source: str) -> str:
    with Template(source) as template:
        _ = template.capabilities
        template.render(MESSAGES, continue_final_message=True)
        return str(template.render(MESSAGES[:7], tools=[TOOL])["prompt"])


def peak() -> float:
    """The most memory that this program has had at once, MiB."""
    if sys.platform == "linux":  # where ru_maxrss begins with what the program had that started this one
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


for name, source in json.load(sys.stdin).items():
    print(json.dumps([name]), flush=True)
    start = time.perf_counter()
    try:
        outcome = f"rendered {render(source)[:40]}"
    except TemplateError as error:
        outcome = str(error)
    print(json.dumps([name, outcome, time.perf_counter() - start, peak()]), flush=True)
