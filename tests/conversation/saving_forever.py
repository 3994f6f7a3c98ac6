"""A program whose children save conversations again and again until they are killed. Arguments: model, folder, count."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from causerie import Engine
from causerie.conversation.record import to_record
from causerie.conversation.saved_file import write_saved


def main(model: str, folder: Path, count: int) -> None:
    """Children are forked, as starting a model for each of them would take long."""
    parent = os.getpid()
    with Engine(model, n_ctx=512, n_threads=1) as engine:
        chat = engine.conversation()
        snapshots = []
        for question in ("Why is the sea salty?", "And lakes?"):
            chat.send(question, max_tokens=9)
            snapshots.append(chat.snapshot())
        texts = [to_record(snapshot, drop_functions=False) for snapshot in snapshots]
        for _ in range(count):
            child = os.fork()
            if not child:
                print(os.getpid(), flush=True)
                while os.getppid() == parent:
                    for snapshot, text in zip(snapshots, texts, strict=True):
                        write_saved(folder / "file.causerie", snapshot, text, compress=False)
                os._exit(0)
            os.waitpid(child, 0)
            print("gone", flush=True)
            sys.stdin.readline()  # what is left is looked at


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
