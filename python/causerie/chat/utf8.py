"""Bytes of tokens in, text out: characters that tokens cut apart come out whole."""

from __future__ import annotations

import codecs

__all__ = ["Utf8Assembler"]

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Utf8Assembler:
    """Decodes UTF-8 that arrives in pieces cut anywhere.

    At most 3 bytes are held back: the start of a character whose end has not come yet. Invalid bytes become U+FFFD. All
    text that `feed` and `flush` give, joined, equals ``all_bytes.decode("utf-8", "replace")``, however the bytes were
    cut.
    """

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = _new_decoder("replace")

    def feed(self, piece: bytes) -> str:
        """The text that ``piece`` completes; "" while a character is unfinished."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """End of the bytes: U+FFFD if a character stayed unfinished, else "". What is fed next starts anew."""
        return self._decoder.decode(b"", final=True)

    @property
    def pending(self) -> bytes:
        """The bytes held back."""
        return self._decoder.getstate()[0]
