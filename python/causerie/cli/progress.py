"""The bar on stderr while a model is fetched."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causerie.cli.text import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causerie.models.catalog import Progress

__all__ = ["fetch_progress"]


@contextmanager
def fetch_progress(name: str) -> Iterator[Progress]:
    """A callback for `causerie.models.resolve`. It shows nothing until it is called: a cached model is not fetched.

    A terminal gets a bar. Anything else, and a terminal without rich, gets one line.
    """
    bar = _rich_bar(name) if sys.stderr.isatty() else None
    started = False

    def report(done: int, total: int | None) -> None:
        nonlocal started
        if not started:
            started = True
            if bar is None:
                of = "" if total is None else f" ({size(total)})"
                print(f"causerie: fetching {name}{of}", file=sys.stderr, flush=True)
            else:
                bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    try:
        yield report
    finally:
        if bar is not None and started:
            bar.stop()


def _rich_bar(name: str) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(f"Fetching {name}", total=None)
    return bar
