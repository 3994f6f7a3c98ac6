"""`causerie chat`: one question and its answer, or a conversation in the terminal."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from causerie.cli.app import EXIT_INTERRUPTED

if TYPE_CHECKING:
    import argparse

    from causerie.chat.options import SamplingOptions
    from causerie.conversation import Conversation, Engine

__all__ = ["chat", "sampling"]

_N_CTX_DEFAULT = 4096


def chat(args: argparse.Namespace) -> int:
    """Run `causerie chat`; returns the exit code."""
    prompt = args.prompt
    interactive = prompt is None and sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        from causerie.cli.interactive import require

        require()
    elif prompt is None:
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    if prompt is not None and not prompt.strip():
        args.parser.error("the prompt is empty: give one as an argument or on stdin")
    system = None if args.system is None else _utf8(args.system).strip()
    try:
        options = sampling(args)
    except ValueError as error:
        args.parser.error(str(error))
    with ExitStack() as stack:
        engine = _open(args, options, stack, alone=prompt is not None)
        if prompt is None:
            from causerie.cli.branches import Branches
            from causerie.cli.interactive import talk

            branches = Branches(engine, system=system, overflow=args.overflow)
            return talk(branches, model=args.model, seed=args.seed)
        return _ask_once(engine, engine.conversation(system or None), _utf8(prompt).strip(), args.seed)


def _utf8(text: str) -> str:
    """An argument that is not UTF-8 reaches Python as lone surrogates, which no tokeniser takes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def sampling(args: argparse.Namespace) -> SamplingOptions:
    """The options that the command line gives; what it does not give is inherited from the model's file.

    Raises:
        ValueError: one is out of range.
    """
    from causerie.chat.options import SamplingOptions

    names = ("temperature", "top_k", "top_p", "min_p", "max_tokens", "thinking_budget")
    return SamplingOptions.of({name: value for name in names if (value := getattr(args, name)) is not None})


def _open(args: argparse.Namespace, options: SamplingOptions, stack: ExitStack, *, alone: bool) -> Engine:
    """The engine, for one conversation alone or for branches."""
    from causerie.cli.models import resolve_model

    path = resolve_model(args.model)
    from causerie.conversation import Engine
    from causerie.errors import CauserieError
    from causerie.llama.model import Model

    placement = {"devices": args.devices, "rpc": args.rpc or (), "strict": args.strict}
    if args.gpu_layers is not None:
        placement["n_gpu_layers"] = args.gpu_layers
    try:
        source: Model | Path = path
        if args.isolate or args.gpu_layers == "auto":
            with Model(path, devices="cpu", no_alloc=True) as facts:
                n_ctx_train = facts.n_ctx_train
        else:
            # The callback does nothing, but lets Ctrl-C in while a large file is being read.
            source = stack.enter_context(Model(path, progress=lambda _: None, **placement))
            n_ctx_train, placement = source.n_ctx_train, {}
        engine = Engine(
            source,
            isolate=args.isolate,
            n_ctx=args.n_ctx or min(n_ctx_train or _N_CTX_DEFAULT, _N_CTX_DEFAULT),
            n_threads=args.threads,
            max_resident=1 if alone else None,
            sampling=options,
            template=None if args.template is None else Path(args.template),
            adapters=[*args.lora, *args.lora_scaled],
            **placement,
        )
    except CauserieError:
        raise
    except ValueError as error:  # llama.cpp's own refusal, for example of a model that only embeds
        raise CauserieError(str(error)) from error
    return stack.enter_context(engine)


def _ask_once(engine: Engine, conversation: Conversation, prompt: str, seed: int | None) -> int:
    from causerie.cli.answer import answer
    from causerie.cli.printing import AnswerPrinter
    from causerie.cli.replies import cut_note, overflow_text
    from causerie.errors import ContextOverflowError

    write = AnswerPrinter(sys.stdout, sys.stderr)
    try:
        reply = answer(conversation, lambda: conversation.stream(prompt, seed=seed), write)
    except ContextOverflowError as error:
        raise ContextOverflowError(
            overflow_text(error), needed=error.needed, available=error.available, kind=error.kind
        ) from error
    write.end_line()
    if note := cut_note(reply, conversation, engine.n_ctx):
        print(f"causerie: note: {note}", file=sys.stderr)
    return EXIT_INTERRUPTED if reply.finish_reason == "cancelled" else 0
