"""`causerie doctor`: what this installation can use here, or why it cannot be used at all."""

from __future__ import annotations

import json
import platform
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from causerie.cli.text import one_line, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from causerie._build import Diagnosis

__all__ = ["doctor"]

_REINSTALL = "reinstall for this Python: pip install --force-reinstall --no-cache-dir causerie"


def doctor(*, as_json: bool) -> int:
    """Print the diagnosis; returns 0, or 1 if the native module cannot be loaded."""
    try:
        import causerie

        diagnosis = causerie.doctor()
    except (ImportError, OSError) as error:
        return _report_broken(error, as_json=as_json)
    if as_json:
        print(json.dumps(_facts(diagnosis), indent=2))
    else:
        print("\n".join(_lines(diagnosis)))
    return 0


def _report_broken(error: Exception, *, as_json: bool) -> int:
    if as_json:
        facts = {
            "ok": False,
            "error": one_line(error),
            "advice": _REINSTALL,
            "python": platform.python_version(),
            "platform": platform.platform(),
        }
        print(json.dumps(facts, indent=2))
    else:
        print(f"causerie: error: the native module cannot be loaded: {one_line(error)}", file=sys.stderr)
        print(f"python     {platform.python_version()} on {platform.platform()}", file=sys.stderr)
        print(f"what to do {_REINSTALL}", file=sys.stderr)
    return 1


def _facts(found: Diagnosis) -> dict[str, Any]:
    build = found.build
    return {
        "ok": True,
        "version": build.version,
        "llama_commit": build.llama_commit,
        "llama_version": build.llama_version,
        "compiler": build.compiler,
        "build_type": build.build_type,
        "build_system": build.system,
        "flags": dict(build.flags),
        "backends": list(build.backends),
        "cpu_variants": list(build.cpu_variants),
        "cpu_variant": build.cpu_variant,
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "kind": device.kind,
                "backend": device.backend,
                "memory_free": device.memory_free,
                "memory_total": device.memory_total,
            }
            for device in found.devices
        ],
        "cpu_features": list(found.cpu_features),
        "threads": found.threads,
        "threads_reason": found.threads_reason,
        "memory_available": found.memory_available,
        "plugins": [{**vars(plugin), "path": str(plugin.path)} for plugin in found.plugins],
        "missing": dict(found.missing),
        "python": found.python,
        "platform": found.platform,
    }


def _flags(flags: Mapping[str, str]) -> Iterator[str]:
    """Options that are on, or have a value; `--json` has those that are off too."""
    for name, value in flags.items():
        if value.upper() in {"ON", "TRUE", "YES", "1"}:
            yield name
        elif value.upper() not in {"OFF", "FALSE", "NO", "0", ""}:
            yield f"{name}={value.replace(' ', '')}"


def _wrapped(title: str, text: str) -> list[str]:
    indent = " " * 11
    return textwrap.wrap(
        text, 100, initial_indent=f"{title:<11}", subsequent_indent=indent, break_long_words=False
    ) or [title]  # fmt: skip


def _lines(found: Diagnosis) -> Iterator[str]:
    build = found.build
    yield f"causerie   {build.version}"
    yield f"llama.cpp  {build.llama_version}, commit {build.llama_commit}"
    yield f"python     {found.python} on {found.platform}"
    yield f"built      {build.build_type} by {build.compiler} for {build.system}"
    yield from _wrapped("flags", " ".join(_flags(build.flags)))
    yield f"backends   {', '.join(build.backends)}"
    yield from _wrapped("threads", f"{found.threads}: {found.threads_reason}")
    if build.cpu_variants:
        yield from _wrapped("variant", f"{build.cpu_variant or 'none'}, of {' '.join(build.cpu_variants)}")
    yield from _wrapped("cpu", " ".join(found.cpu_features) or "no special instructions")
    memory = "unknown" if found.memory_available is None else f"{size(found.memory_available)} free"
    yield f"memory     {memory}"
    yield "devices"
    for device in found.devices:
        room = f", {size(device.memory_free)} of {size(device.memory_total)} free" if device.memory_total else ""
        yield f"  {device.name:<10} {device.kind}: {device.description} ({device.backend}{room})"
    if not found.devices:
        yield "  none"
    told = [plugin for plugin in found.plugins if plugin.used or plugin.problem]
    if told:
        yield "plugins"
        for plugin in told:
            yield f"  {plugin.backend:<10} {plugin.path}{': not used: ' if plugin.problem else ''}{plugin.problem}"
    if found.missing:
        yield "not usable here"
        for name, advice in found.missing.items():
            yield f"  {name:<10} {advice}"
