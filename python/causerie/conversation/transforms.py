"""Changing texts on their way: what a user says, what the model is shown, what a reader sees."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from causerie.chat.characters import CharacterBuffer
from causerie.conversation.generator_transforms import FromAsyncGenerator, FromGenerator, checked_piece
from causerie.conversation.transform_names import transform_named

if TYPE_CHECKING:
    from causerie.chat.messages import Message

__all__ = [
    "HistoryTransform",
    "InputTransform",
    "OutputTransform",
    "OutputTransformLike",
    "as_history_transform",
    "as_input_transforms",
    "as_output_transforms",
    "atransformed",
    "started",
    "transformed",
]


class OutputTransform(Protocol):
    """Changes a reply's text while it comes. Each reply gets one of its own.

    What it gives for a text must not depend on how the text was cut: joined, it is the same for any pieces.
    """

    def feed(self, text: str) -> str:
        """More of the text; gives what can be shown now."""

    def flush(self) -> str:
        """End of the text; gives what was held back."""


InputTransform: TypeAlias = Callable[[str], str]
"""What a user says, and what the history is to have instead."""

HistoryTransform: TypeAlias = "Callable[[tuple[Message, ...]], Iterable[Message | Mapping[str, Any]]]"
"""The history, and what the model is shown instead."""

OutputTransformLike: TypeAlias = (
    Callable[[], OutputTransform]
    | Callable[[AsyncIterator[str]], AsyncIterator[str]]
    | Callable[[Iterator[str]], Iterator[str]]
)
"""What makes an `OutputTransform` for each reply: a function without arguments (a class, a supplied transform), or a
generator function that is given the chunks and gives others."""


class _Chain:
    """Several transforms, one behind the other, of which a reader sees whole characters."""

    def __init__(self, links: Iterable[OutputTransform]) -> None:
        self._links = (*links, CharacterBuffer())

    def feed(self, text: str) -> str:
        """See `OutputTransform.feed`."""
        for link in self._links:
            if not text:
                break
            text = checked_piece(link.feed(text))
        return text

    def flush(self) -> str:
        """See `OutputTransform.flush`."""
        text = ""
        for link in self._links:
            before = checked_piece(link.feed(text)) if text else ""
            text = before + checked_piece(link.flush())
        return text


def started(transforms: Sequence[OutputTransformLike]) -> OutputTransform | None:
    """One transform for one reply, of all of them; None if there are none.

    Raises:
        TypeError: one of them makes no `OutputTransform`.
        BaseException: theirs.
    """
    return _Chain(_begun(transform) for transform in transforms) if transforms else None


def _begun(transform: OutputTransformLike) -> OutputTransform:
    if inspect.isasyncgenfunction(transform):
        return FromAsyncGenerator(transform)
    if inspect.isgeneratorfunction(transform):
        return FromGenerator(transform)
    made = cast("Callable[[], OutputTransform]", transform)()
    if not _is_running(made):
        raise TypeError(f"an output transform has feed() and flush(): {type(made).__name__} has not")
    return made


def _is_running(value: object) -> bool:
    return callable(getattr(value, "feed", None)) and callable(getattr(value, "flush", None))


def transformed(
    chunks: Iterable[str], transform: str | OutputTransformLike | Sequence[str | OutputTransformLike]
) -> Iterator[str]:
    """Texts behind an output transform, wherever they come from.

    Args:
        chunks: pieces of one text.
        transform: as for `Engine.conversation`.

    Raises:
        TypeError, ValueError: as `as_output_transforms` and `started`.
    """
    chain = started(as_output_transforms(transform))
    for chunk in chunks:
        if text := chunk if chain is None else chain.feed(chunk):
            yield text
    if chain is not None and (text := chain.flush()):
        yield text


async def atransformed(
    chunks: AsyncIterator[str], transform: str | OutputTransformLike | Sequence[str | OutputTransformLike]
) -> AsyncIterator[str]:
    """As `transformed`, for asyncio."""
    chain = started(as_output_transforms(transform))
    async for chunk in chunks:
        if text := chunk if chain is None else chain.feed(chunk):
            yield text
    if chain is not None and (text := chain.flush()):
        yield text


def as_input_transforms(
    value: str | InputTransform | Iterable[str | InputTransform] | None,
) -> tuple[InputTransform, ...]:
    """Input transforms as a tuple; names stand for those that were registered.

    Raises:
        TypeError: one is neither a name nor callable.
        ValueError: nothing was registered by that name.
    """
    return tuple(_named(each, "input_transforms") for each in _several(value, "input_transforms"))


def as_output_transforms(
    value: str | OutputTransformLike | Iterable[str | OutputTransformLike] | None,
) -> tuple[OutputTransformLike, ...]:
    """Output transforms as a tuple, as `as_input_transforms`."""
    for each in (found := tuple(_several(value, "output_transform"))):
        if _is_running(each) and not callable(each):
            raise TypeError(
                f"each reply needs an output transform of its own: give what makes one, as lambda: "
                f"{type(each).__name__}(...)"
            )
    return tuple(_named(each, "output_transform") for each in found)


def as_history_transform(value: str | HistoryTransform | None) -> HistoryTransform | None:
    """A history transform, as `as_input_transforms`."""
    found: HistoryTransform | None = None if value is None else _named(value, "history_transform")
    return found


def _several(value: Any, what: str) -> Iterable[Any]:
    if value is None:
        return ()
    if isinstance(value, str) or callable(value) or _is_running(value):
        return (value,)
    if not isinstance(value, Iterable):
        raise TypeError(f"{what} needs something to call, not {type(value).__name__}")
    return value


def _named(value: Any, what: str) -> Any:
    found = transform_named(value) if isinstance(value, str) else value
    if not callable(found):
        raise TypeError(f"{what} needs something to call, not {type(found).__name__}")
    return found
