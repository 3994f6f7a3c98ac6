"""`causerie chat`: one question and its answer, or a conversation in the terminal."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from causerie.cli.app import EXIT_INTERRUPTED

if TYPE_CHECKING:
    import argparse

    from causerie.cli.session import Reply, Session

__all__ = ["chat", "cut_note"]


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
    with ExitStack() as stack:
        session = _open(args, stack)
        if prompt is None:
            from causerie.cli.interactive import talk

            return talk(session, model=args.model)
        return _ask_once(session, _utf8(prompt))


def _utf8(text: str) -> str:
    """An argument that is not UTF-8 reaches Python as lone surrogates, which no tokeniser takes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _open(args: argparse.Namespace, stack: ExitStack) -> Session:
    from causerie.cli.models import resolve_model

    path = resolve_model(args.model)
    from causerie.cli.sampling import build_sampler
    from causerie.cli.session import Session
    from causerie.llama.model import Model

    # The callback does nothing, but lets Ctrl-C in while a large file is being read.
    model = stack.enter_context(Model(path, progress=lambda _: None))
    session = Session(
        model,
        stack.enter_context(build_sampler(args, model)),
        system=None if args.system is None else _utf8(args.system),
        n_ctx=args.n_ctx,
        n_threads=args.threads,
        max_tokens=args.max_tokens,
    )
    stack.callback(session.close)
    return session


def _ask_once(session: Session, prompt: str) -> int:
    from causerie.cli.answer import answer

    ended = True

    def write(piece: str) -> None:
        nonlocal ended
        ended = piece.endswith("\n")
        sys.stdout.write(piece)
        sys.stdout.flush()

    reply = answer(session, prompt, write)
    if not ended:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if note := cut_note(reply, session):
        print(f"causerie: note: {note}", file=sys.stderr)
    return EXIT_INTERRUPTED if reply.finish_reason == "cancelled" else 0


def cut_note(reply: Reply, session: Session) -> str | None:
    """Why an answer is not whole; None if it is, or if the user stopped it."""
    if reply.context_full:
        return f"the answer was cut: the context of {session.n_ctx} tokens is full (--n-ctx)"
    if reply.finish_reason == "length":
        return f"the answer was cut after {reply.completion_tokens} tokens (--max-tokens)"
    return None
