"""`causerie rpc-server`: offers devices of this machine to engines on other ones."""

from __future__ import annotations

import ipaddress
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["rpc_server"]

_WARNING = """\
causerie: WARNING: {host} is not this machine alone. llama.cpp's RPC has no authentication and no encryption: whoever
causerie: WARNING: reaches port {port} can read and write the memory of this process, and through it run programs here.
causerie: WARNING: Use it only inside a network in which you trust every machine."""


def rpc_server(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run `causerie rpc-server`; does not return while it serves."""
    try:
        address = ipaddress.IPv4Address(args.host)
    except ValueError:
        parser.error(f"--host wants a numeric IPv4 address, not {args.host!r}")
    if not address.is_loopback:
        if not args.allow_network:
            parser.error(
                f"{address} can be reached from other machines, and there is no authentication: add --allow-network "
                "if that is what you want"
            )
        print(_WARNING.format(host=address, port=args.port), file=sys.stderr)
    from causerie.errors import CauserieError
    from causerie.llama import find_devices, rpc_serve
    from causerie.llama.processors import processors
    from causerie.llama.rpc import served_devices

    try:
        devices = [found for name in args.devices or () for found in find_devices(name)] or served_devices()
    except ValueError as error:
        raise CauserieError(str(error)) from error
    names = ", ".join(device.name for device in devices)
    print(f"causerie: serving {names} at {address}:{args.port}; Ctrl-C ends it", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the call below never comes back to Python
    if not getattr(args, "verbose", False):  # llama.cpp tells of each client on stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if args.cache is not None:
        os.makedirs(args.cache, exist_ok=True)  # noqa: PTH103
    rpc_serve(
        f"{address}:{args.port}", devices=devices, n_threads=args.threads or processors().threads, cache_dir=args.cache
    )
    return 1
