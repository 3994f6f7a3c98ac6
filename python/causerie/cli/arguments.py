"""What may be written on the command line. Imports nothing heavy: `causerie --help` must answer at once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["build_parser"]

_SEED_MAX = 2**32 - 2  # llama.cpp takes 2**32 - 1 for "choose one"
_INT32_MAX = 2**31 - 1


def _integer(low: int, high: int = _INT32_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not in {low}..{high}")
        return value

    parse.__name__ = "integer"  # argparse says: invalid integer value
    return parse


def _number(low: float, high: float = float("inf")) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high or value == float("inf"):  # the comparison is false for nan too
            limit = f"at least {low:g}" if high == float("inf") else f"in {low:g}..{high:g}"
            raise argparse.ArgumentTypeError(f"{text} is not {limit}")
        return value

    parse.__name__ = "number"
    return parse


def _scaled(text: str) -> tuple[str, float]:
    path, colon, scale = text.rpartition(":")
    try:
        return path, float(scale if colon else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE:SCALE") from None


def _add_chat(commands: Any, common: argparse.ArgumentParser) -> None:
    chat = commands.add_parser(
        "chat",
        parents=[common],
        help="talk with a model, or ask it one question",
        description="Ask PROMPT (or the text on stdin) and print the answer; without either, talk in the terminal.",
    )
    chat.set_defaults(parser=chat)  # for usage errors that only reading stdin can tell
    chat.add_argument("prompt", nargs="?", metavar="PROMPT", help="the question; it is used instead of stdin")
    chat.add_argument(
        "--model", "-m", default="smollm2", metavar="NAME",
        help="an alias, a path to a GGUF file, or hf:owner/repo:filename (default: %(default)s)",
    )  # fmt: skip
    chat.add_argument("--system", "-s", metavar="TEXT", help="what the model is told before the conversation")
    chat.add_argument("--template", metavar="FILE", help="a chat template in Jinja instead of the model's own")
    chat.add_argument(
        "--lora", action="append", default=[], metavar="FILE", help="a LoRA adapter, as often as there are several"
    )
    chat.add_argument(
        "--lora-scaled", action="append", default=[], type=_scaled, metavar="FILE:SCALE", help="the same, with a scale"
    )
    sampling = chat.add_argument_group("sampling", "Defaults: what the model's file recommends, else those shown.")
    sampling.add_argument("--temperature", type=_number(0), metavar="T", help="0 always takes the likeliest (0.8)")
    sampling.add_argument("--top-k", type=_integer(0), metavar="K", help="only the K likeliest tokens; 0: all (40)")
    sampling.add_argument("--top-p", type=_number(0, 1), metavar="P", help="the likeliest with joint share P (0.95)")
    sampling.add_argument("--min-p", type=_number(0, 1), metavar="P", help="at least P times the likeliest (0.05)")
    sampling.add_argument("--seed", type=_integer(0, _SEED_MAX), metavar="N", help="repeats answers (random)")
    limits = chat.add_argument_group("limits")
    limits.add_argument(
        "--max-tokens", type=_integer(1), default=1024, metavar="N", help="longest answer (default: %(default)s)"
    )
    limits.add_argument(
        "--thinking-budget", type=_integer(0), metavar="N",
        help="most tokens to think, where the model's template has thinking (default: any number)",
    )  # fmt: skip
    limits.add_argument(
        "--n-ctx", type=_integer(16), metavar="N",
        help="tokens the model remembers (default: what it was trained with, 4096 at most)",
    )  # fmt: skip
    limits.add_argument(
        "--overflow", choices=("trim", "error"), default="trim",
        help="when a conversation no longer fits: drop its oldest questions, or refuse (default: %(default)s)",
    )  # fmt: skip
    limits.add_argument("--threads", type=_integer(1, 512), metavar="N", help="(default: one for each core)")
    _add_placement(chat)
    chat.add_argument(
        "--isolate", action="store_true", help="keep the model in a process of its own, which may die alone"
    )


def _layers(text: str) -> int | str:
    return text if text == "auto" else _integer(-1)(text)


def _add_placement(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("devices", "Where the model is; `causerie doctor` lists what there is.")
    where.add_argument(
        "--device", action="append", metavar="NAME", dest="devices",
        help='a device to use, as often as there are several; "cpu": none but the processor (default: all GPUs)',
    )  # fmt: skip
    where.add_argument("--rpc", action="append", metavar="HOST:PORT", help="an RPC server to use too")
    where.add_argument(
        "--gpu-layers", type=_layers, metavar="N", help='layers on devices; -1: all; "auto": as many as fit (all)'
    )
    where.add_argument("--strict", action="store_true", help="refuse if not all of these layers get there")


def _add_fit(commands: Any, common: argparse.ArgumentParser) -> None:
    fit = commands.add_parser(
        "fit",
        parents=[common],
        help="what of a model fits where",
        description="What of MODEL fits into the memory that devices have free now. Its weights are not loaded.",
    )
    fit.add_argument("model", metavar="MODEL", help="as for `causerie chat --model`")
    fit.add_argument("--n-ctx", type=_integer(0), default=0, metavar="N", help="tokens; 0: as many as fit")
    fit.add_argument("--margin", type=_integer(0), default=1024, metavar="MIB", help="left free (%(default)s)")
    fit.add_argument("--type-k", default="f16", metavar="TYPE", help="of the cache (%(default)s)")
    fit.add_argument("--type-v", default="f16", metavar="TYPE", help="of the cache (%(default)s)")
    fit.add_argument("--json", action="store_true", help="for programs")
    where = fit.add_argument_group("devices")
    where.add_argument("--device", action="append", metavar="NAME", dest="devices", help="(default: all GPUs)")
    where.add_argument("--rpc", action="append", metavar="HOST:PORT", help="an RPC server to use too")


def _add_rpc_server(commands: Any, common: argparse.ArgumentParser) -> None:
    server = commands.add_parser(
        "rpc-server",
        parents=[common],
        help="offer this machine's devices to another one",
        description="Offer devices to an engine on another machine, one client after the other, until Ctrl-C. There is "
        "no authentication and no encryption: whoever reaches the port can read and write this process' memory.",
    )
    server.add_argument("--host", default="127.0.0.1", metavar="IPV4", help="address to listen at (%(default)s)")
    server.add_argument("--port", type=_integer(1, 65535), default=50052, metavar="N", help="(%(default)s)")
    server.add_argument(
        "--allow-network", action="store_true", help="really listen at an address that other machines can reach"
    )
    server.add_argument(
        "--device", action="append", metavar="NAME", dest="devices", help="(default: all GPUs, or the processor)"
    )
    server.add_argument("--threads", type=_integer(1, 512), metavar="N", help="(default: one for each core)")
    server.add_argument("--cache", metavar="FOLDER", help="keep large tensors there, so that they are sent once")


def _add_models(commands: Any, common: argparse.ArgumentParser) -> None:
    models = commands.add_parser(
        "models", parents=[common], help="list, fetch and remove model files", description="Model files by name."
    )
    actions = models.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", parents=[common], help="what is cached, and the known aliases (the default)")
    for action, text in (
        ("fetch", "fetch a model, unless it is here already, and print its path"),
        ("path", "print the path of a model that is here already"),
        ("remove", "delete a model from the cache"),
    ):
        parser = actions.add_parser(action, parents=[common], help=text, description=text.capitalize() + ".")
        parser.add_argument("name", metavar="NAME", help="an alias, or another name that `causerie chat --model` takes")


def build_parser() -> argparse.ArgumentParser:
    """The parser of `causerie`; the parsed `command` is None or the name of one."""
    common = argparse.ArgumentParser(add_help=False)
    # SUPPRESS: a subcommand's default would overwrite what stood before the subcommand.
    common.add_argument(
        "--verbose", "-v", action="store_true", default=argparse.SUPPRESS, help="show the log on stderr"
    )
    parser = argparse.ArgumentParser(
        prog="causerie",
        parents=[common],
        description="Conversations on llama.cpp.",
        epilog="CAUSERIE_DEBUG=1 shows tracebacks; CAUSERIE_CACHE_DIR says where models are kept.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_chat(commands, common)
    _add_models(commands, common)
    _add_fit(commands, common)
    _add_rpc_server(commands, common)
    doctor = commands.add_parser(
        "doctor",
        parents=[common],
        help="what this installation can use on this machine",
        description="What this installation can use on this machine, and what to do about what is missing.",
    )
    doctor.add_argument("--json", action="store_true", help="for programs")
    return parser
