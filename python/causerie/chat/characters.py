"""Text cut into chunks where a reader sees whole characters: no emoji sequence, no syllable is cut in two."""

from __future__ import annotations

import unicodedata

__all__ = ["CharacterBuffer"]

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_VIRAMA = 9  # the canonical combining class of the sign that joins two consonants in Indic scripts

# The longest emoji in use (a couple with skin tones) has 10 code points; endless sequences exist only as nonsense.
_MAX_HELD = 32

# Emoji that Unicode does not count among the "other symbols".
_MORE_EMOJI = frozenset("\u203c\u2049\u2139\u2194\u25fd\u25fe\u3030\u303d")


def _extends(character: str) -> bool:
    """Whether it belongs to the character before it: marks, variation selectors, joiners, skin tones, flag tags."""
    return (
        character in {_JOINER, "\u200c"}
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or unicodedata.category(character)[0] == "M"
    )


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _may_grow(base: str) -> bool:
    """Whether what follows often belongs to ``base``: emoji, and letters of scripts that write vowels as marks."""
    if base.isascii():
        return False
    if "\U0001f000" <= base <= "\U0001ffff" or base in _MORE_EMOJI:
        return True
    category = unicodedata.category(base)
    if category != "Lo":
        return category == "So"
    # Not CJK, kana, Yi, Hangul: there a character is complete as it stands.
    return base < "\u2e80" or "\ua4d0" <= base < "\uac00" or "\U00010a00" <= base < "\U00017000"


def _complete(text: str) -> int:
    """How much of ``text`` ends with a character that nothing is likely to extend."""
    end = len(text)
    if not end or text[-1].isascii():
        return end
    last = text[-1]
    if last not in {_JOINER, _EMOJI_STYLE} and not _extends(last) and not _may_grow(last):
        return end
    start = end - 1
    limit = max(0, end - _MAX_HELD)
    while start > limit:
        before = text[start - 1]
        joined = before == _JOINER or unicodedata.combining(before) == _VIRAMA
        if not joined and not _extends(text[start]):
            break
        start -= 1
    if _is_flag_half(text[start]):
        return _complete_flags(text, start, end)
    open_end = last in {_JOINER, _EMOJI_STYLE} or unicodedata.combining(last) == _VIRAMA
    return start if open_end or _may_grow(text[start]) else end


def _complete_flags(text: str, start: int, end: int) -> int:
    first = start
    while first and _is_flag_half(text[first - 1]):
        first -= 1
    return end if (start - first) % 2 else start  # a flag is two halves; the second one completes it


class CharacterBuffer:
    """Holds back the end of a text while the character it shows may still grow.

    Which characters those are cannot be known without the next piece, so the choice is by kind, to keep what most text
    is made of (Latin, Cyrillic, Greek, CJK, Hangul, punctuation) free of any delay:

    - Held until the next character begins: emoji (they may be joined, coloured or styled by what follows), the first
      half of a flag, letters of scripts that write vowels as marks (Devanagari, Thai, Arabic, Hebrew and others),
      whatever ends with a joiner, an emoji style selector or a virama.
    - Not held: ASCII, cased letters and CJK. So a mark that comes in a later piece than its Latin letter (text that is
      not in the usual composed form), or the frame of a keycap emoji behind its digit, may begin a chunk of its own.

    At most 32 code points are held: a longer sequence, which no writing system has, is given out from its start.
    Joined, the chunks are the text that was fed, whatever the pieces.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What of the text so far can be shown now."""
        text = self._held + text
        cut = _complete(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """End of the text: what was held back."""
        held, self._held = self._held, ""
        return held

    @property
    def pending(self) -> str:
        """The text held back."""
        return self._held
