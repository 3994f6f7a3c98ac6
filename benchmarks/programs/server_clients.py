"""Clients of a running llama-server: n requests at the same moment; prints the seconds until the last token."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from conversations import question, system


def main() -> None:
    """Usage: server_clients.py URL N TOKENS SHARED."""
    url, n, tokens, shared = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    head = [{"role": "system", "content": system(shared)}] if shared else []
    gate = threading.Barrier(n + 1)

    def ask(i: int) -> int:
        body = {
            "messages": [*head, {"role": "user", "content": question(i)}],
            "max_tokens": tokens,
            "temperature": 0,
            "cache_prompt": False,
        }
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        gate.wait()
        with urllib.request.urlopen(request) as answer:
            return int(json.load(answer)["usage"]["completion_tokens"])

    with ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(ask, i) for i in range(n)]
        gate.wait()
        start = time.perf_counter()
        counts = [future.result() for future in futures]
        seconds = time.perf_counter() - start
    assert counts == [tokens] * n, counts
    print(json.dumps({"seconds": seconds, "tokens_per_second": n * tokens / seconds}))


if __name__ == "__main__":
    main()
