"""From the bytes of a reply's tokens to what it says: text, thinking and tool calls, piece by piece."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from causerie.chat.characters import CharacterBuffer
from causerie.chat.parsing import ReplyDelta, ReplyParser
from causerie.chat.reply_text import ReplyText
from causerie.chat.stops import StopMatcher
from causerie.chat.text_ids import token_ids
from causerie.chat.utf8 import Utf8Assembler
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from causerie.chat.chat_template import Prompt
    from causerie.chat.parsing import ReplyReader
    from causerie.chat.tool_call import ToolCall
    from causerie.llama.vocab import Vocab

__all__ = ["BytesReader", "FormatReader", "PlainReader", "bytes_reader", "preserved_ids"]

_OF_TEXT_ONLY = {"epsilon", "end", "literal", "sequence", "space", "until", "tag", "rule", "ref"}


class BytesReader(Protocol):
    """Reads one reply from the bytes of its tokens."""

    @property
    def content(self) -> str:
        """The answer's text so far, up to a stop string."""

    @property
    def thinking(self) -> str:
        """What was thought."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that are complete."""

    @property
    def raw(self) -> str:
        """All that was generated, with what tells thinking and calls from text, up to a stop string of a plain text."""

    @property
    def stop(self) -> str | None:
        """The stop string that ended it, the user's or the template's."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string of the user's cut it off."""

    @property
    def ended(self) -> bool:
        """Whether nothing more is wanted."""

    @property
    def cut_short(self) -> bool:
        """Whether the message is not all that was generated."""

    def feed(self, piece: bytes) -> Iterable[ReplyDelta]:
        """What the bytes of one more token complete."""

    def flush(self, *, cut: bool) -> Iterable[ReplyDelta]:
        """End of the reply: what was held back.

        Args:
            cut: it was broken off: a call that is not complete is left out.

        Raises:
            TemplateError: it was not, and a call in it is malformed.
        """


def bytes_reader(
    prompt: Prompt,
    stops: Iterable[str],
    *,
    several: bool = True,
    check: Callable[[ToolCall], object] | None = None,
    begun: bytes = b"",
) -> BytesReader:
    """What reads the reply to a prompt.

    Args:
        prompt: the prompt.
        stops: strings that end the reply where its text has them; thinking and arguments may hold them. Those of the
            template end it wherever they stand.
        several: whether the reply may hold more than one call; else it ends with the first.
        check: looks at each complete call; what it raises ends the reply.
        begun: what of the reply was there before; it is not told again.
    """
    parser = prompt.reply_parser()
    if isinstance(parser, ReplyParser) and is_plain(prompt):
        return PlainReader(stops, prompt.stops, begun)
    return FormatReader(parser, stops, prompt.stops, several=several, check=check, begun=begun)


def is_plain(prompt: Prompt) -> bool:
    """Whether a reply is text, whatever it says."""
    return not prompt.parser or _is_plain(prompt.parser, prompt.generation_prompt)


@lru_cache(64)
def _is_plain(parser: str, generation_prompt: str) -> bool:
    nodes = json.loads(parser)["parsers"]
    return all(
        node["type"] in _OF_TEXT_ONLY
        and not (node["type"] == "until" and node["delimiters"])
        and not (node["type"] == "tag" and node["tag"] != "content")
        and not (node["type"] == "literal" and node["literal"] not in generation_prompt)
        for node in nodes
    )


def preserved_ids(prompt: Prompt, vocab: Vocab) -> frozenset[int]:
    """The tokens whose text the reader has to see, although it is not shown."""
    return token_ids(prompt.preserved_tokens + prompt.stops, vocab)


class PlainReader:
    """A reply that is text and nothing else.

    Args:
        stops: stop strings.
        ends: strings that end it and are the template's own.
        begun: bytes of a character that the reply goes on with.
    """

    thinking = ""
    calls: tuple[ToolCall, ...] = ()

    def __init__(self, stops: Iterable[str], ends: Iterable[str] = (), begun: bytes = b"") -> None:
        self._own = set(stops)
        self._text = ReplyText((*self._own, *ends))
        text = self._text.feed(begun)
        self._content: list[str] = [text] if text else []

    @property
    def content(self) -> str:
        """See `BytesReader`."""
        return "".join(self._content)

    raw = content

    @property
    def stop(self) -> str | None:
        """See `BytesReader`."""
        return self._text.matched

    @property
    def stopped(self) -> bool:
        """See `BytesReader`."""
        return self._text.matched in self._own

    @property
    def ended(self) -> bool:
        """See `BytesReader`."""
        return self._text.matched is not None

    @property
    def cut_short(self) -> bool:
        """See `BytesReader`."""
        return self._text.matched is not None

    def feed(self, piece: bytes) -> Iterable[ReplyDelta]:
        """See `BytesReader`."""
        return self._told(self._text.feed(piece))

    def flush(self, *, cut: bool) -> Iterable[ReplyDelta]:  # noqa: ARG002 - a text may end anywhere
        """See `BytesReader`."""
        return self._told(self._text.flush())

    def _told(self, text: str) -> Iterable[ReplyDelta]:
        if not text:
            return ()
        self._content.append(text)
        return (ReplyDelta("text", text),)


class FormatReader:
    """A reply in a template's format.

    Space around the thinking, in front of the text, and between it and calls belongs to the format: it is not told.

    Args:
        parser: knows the format.
        stops, ends: as for `PlainReader`.
        several, check: as for `bytes_reader`.
        begun: what there was before: parsed, and not told.
    """

    def __init__(
        self,
        parser: ReplyReader,
        stops: Iterable[str],
        ends: Iterable[str] = (),
        *,
        several: bool = True,
        check: Callable[[ToolCall], object] | None = None,
        begun: bytes = b"",
    ) -> None:
        self._parser = parser
        self._bytes = Utf8Assembler()
        self._ends = StopMatcher(ends)
        self._stops = StopMatcher()
        self._several = several
        self._check = check
        self._characters = {kind: CharacterBuffer() for kind in ("text", "thinking")}
        self._last = ""
        self._space = ""  # at the end of what was told last: told if more follows
        self._said: dict[str, list[str]] = {"text": [], "thinking": [], "raw": []}
        self._calls: list[ToolCall] = []
        self._begun_calls = ""  # the name of the last call that has begun, until it is complete
        self._enough = False
        for _ in self.feed(begun):
            pass
        self._stops = StopMatcher(stops)

    @property
    def content(self) -> str:
        """See `BytesReader`."""
        return "".join(self._said["text"])

    @property
    def thinking(self) -> str:
        """See `BytesReader`."""
        return "".join(self._said["thinking"])

    @property
    def raw(self) -> str:
        """See `BytesReader`."""
        return "".join(self._said["raw"])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """See `BytesReader`."""
        return tuple(self._calls)

    @property
    def stop(self) -> str | None:
        """See `BytesReader`."""
        return self._stops.matched or self._ends.matched

    @property
    def stopped(self) -> bool:
        """See `BytesReader`."""
        return self._stops.matched is not None

    @property
    def ended(self) -> bool:
        """See `BytesReader`."""
        return self._enough or self._ends.matched is not None

    @property
    def cut_short(self) -> bool:
        """See `BytesReader`."""
        return self._enough

    def feed(self, piece: bytes) -> Iterator[ReplyDelta]:
        """See `BytesReader`."""
        text = self._ends.feed(self._bytes.feed(piece))
        if text and not self._enough:
            self._said["raw"].append(text)
            yield from self._taken(self._parser.feed(text))

    def flush(self, *, cut: bool) -> Iterator[ReplyDelta]:
        """See `BytesReader`."""
        if not self._enough:
            text = self._ends.feed(self._bytes.flush()) + self._ends.flush()
            if text:
                self._said["raw"].append(text)
                yield from self._taken(self._parser.feed(text))
            yield from self._taken(self._parser.flush(partial=True))
            if self._begun_calls and not cut and not self._enough:
                raise TemplateError(f"the reply's call of {self._begun_calls!r} is malformed: {self.raw[-200:]!r}")
        yield from self._change_to("")

    def _taken(self, deltas: Iterable[ReplyDelta]) -> Iterator[ReplyDelta]:
        for delta in deltas:
            if self._enough:
                return
            yield from self._change_to(delta.kind)
            if delta.kind in {"text", "thinking"}:
                yield from self._shown(delta.kind, delta.text)
            elif delta.index and not self._several:
                self._enough = True
            elif delta.tool_call is None:
                self._begun_calls = delta.name
                yield delta
            else:
                self._begun_calls = ""
                if self._check is not None:
                    self._check(delta.tool_call)
                self._calls.append(delta.tool_call)
                yield delta

    def _shown(self, kind: str, text: str) -> Iterator[ReplyDelta]:
        if kind == "text":
            text = self._stops.feed(text)
            self._enough = self._stops.matched is not None
        yield from self._whole(kind, text)

    def _whole(self, kind: str, text: str, *, last: bool = False) -> Iterator[ReplyDelta]:
        """Text whose characters are complete, without space at its end."""
        text, self._space = self._space + text, ""
        if not self._said[kind]:
            text = text.lstrip()
        if not last:
            self._space = text[len(text.rstrip()) :]
            text = text.rstrip()
        self._said[kind] += [text] if text else []
        characters = self._characters[kind]
        text = characters.feed(text)
        if last:
            text += characters.flush()
        if text:
            yield ReplyDelta("text" if kind == "text" else "thinking", text)

    def _change_to(self, kind: str) -> Iterator[ReplyDelta]:
        """What was held back of the text, or thinking, that came before something else."""
        last, self._last = self._last, kind
        if last != kind and last in self._characters:
            held = "" if last == "thinking" or self._stops.matched is not None else self._stops.flush()
            self._enough = self._enough or self._stops.matched is not None
            if last == "thinking" or kind.startswith("tool"):
                held, self._space = (self._space + held).rstrip(), ""
            yield from self._whole(last, held, last=True)
