"""Cuts preprocessed C into top-level declarations, each with the header it comes from.

What pycparser and cffi do not know (attributes, ``__declspec``, ``asm``, ``restrict``) is
taken out here; what an attribute says about the declaration is kept as a flag.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .errors import BindgenError

_TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#[^\n]*)
  | (?P<newline>\n)
  | (?P<space>[^\S\n]+)
  | (?P<token>
        (?:L|u8|[uU])?"(?:\\.|[^"\\\n])*"
      | (?:L|[uU])?'(?:\\.|[^'\\\n])*'
      | [A-Za-z_$][\w$]*
      | \.?\d(?:[eEpP][+-]|[\w.])*
      | \.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | [<>=!]= | && | \|\| | [-+*/%&|^]=
      | .
    )
    """,
    re.VERBOSE | re.MULTILINE,
)
_LINE_MARKER = re.compile(r'\s*#\s*(?:line\s+)?(\d+)(?:\s+"((?:\\.|[^"\\])*)")?')

# fmt: off
_DROPPED_WORDS = frozenset((
    "__extension__", "__restrict", "__restrict__", "restrict", "_Noreturn", "__cdecl", "__stdcall",
    "__fastcall", "__vectorcall", "__ptr32", "__ptr64", "__unaligned",
))
_DROPPED_CALLS = frozenset((
    "__attribute__", "__attribute", "__declspec", "__asm__", "__asm", "asm", "__pragma", "_Alignas",
    "alignas", "_Static_assert", "static_assert",
))
_RENAMED = {
    "__inline": "inline", "__inline__": "inline", "__forceinline": "inline", "__const": "const",
    "__const__": "const", "__signed__": "signed", "__volatile__": "volatile", "__int64": "long long",
    "_Bool": "bool",  # C++ has no _Bool, and the guard is C++
}
# fmt: on
_DEPRECATED = frozenset(("deprecated", "__deprecated__"))
_LAYOUT = frozenset(("packed", "__packed__", "aligned", "__aligned__", "align", "_Alignas", "alignas"))
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    """One token and the place it was written."""

    text: str
    file: str
    line: int


@dataclass
class Chunk:
    """One top-level declaration, without what the parsers do not know."""

    tokens: list[Token] = field(default_factory=list)
    deprecated: bool = False
    special_layout: bool = False
    has_function_body: bool = False

    @property
    def file(self) -> str:
        """The header that the declaration begins in."""
        return self.tokens[0].file

    @property
    def text(self) -> str:
        """The declaration on one line."""
        return " ".join(token.text for token in self.tokens)

    def token_at(self, column: int) -> Token:
        """Return the token at a 1-based column of ``text``."""
        end = 0
        for token in self.tokens:
            end += len(token.text) + 1
            if column <= end:
                return token
        return self.tokens[-1]


def tokenize(preprocessed: str) -> Iterator[Token]:
    """Yield the tokens of preprocessed C; line markers become token positions."""
    file, line = "", 1
    for match in _TOKEN.finditer(preprocessed):
        if match.lastgroup == "newline":
            line += 1
        elif match.lastgroup == "directive":
            marker = _LINE_MARKER.match(match.group())
            if marker:
                line = int(marker.group(1)) - 1
                if marker.group(2) is not None:
                    file = re.sub(r"\\(.)", r"\1", marker.group(2))
        elif match.lastgroup == "token":
            yield Token(match.group(), file, line)


def split(preprocessed: str) -> list[Chunk]:
    """Return the top-level declarations in source order."""
    return list(_Splitter(list(tokenize(preprocessed))).chunks())


class _Splitter:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._chunk = Chunk()
        self._open: list[Token] = []

    def chunks(self) -> Iterator[Chunk]:
        while self._next < len(self._tokens):
            token = self._tokens[self._next]
            if self._skip_unknown(token):
                continue
            self._next += 1
            if self._take(token):
                if len(self._chunk.tokens) > 1 or token.text == "}":
                    yield self._chunk
                self._chunk = Chunk()
        if self._chunk.tokens:
            start = self._open[0] if self._open else self._chunk.tokens[0]
            raise BindgenError(f"{start.file}:{start.line}: the declaration never ends: {self._chunk.text[:120]}")

    def _take(self, token: Token) -> bool:
        """Add a token to the current chunk; return whether it completes it."""
        chunk = self._chunk
        if token.text == "{" and not self._open and chunk.tokens and chunk.tokens[-1].text == ")":
            chunk.has_function_body = True
        chunk.tokens.append(Token(_RENAMED.get(token.text, token.text), token.file, token.line))
        if token.text in _CLOSING:
            self._open.append(token)
        elif token.text in _CLOSING.values():
            if not self._open or _CLOSING[self._open[-1].text] != token.text:
                raise BindgenError(f"{token.file}:{token.line}: unbalanced {token.text!r} in: {chunk.text[-120:]}")
            self._open.pop()
        if self._open:
            return False
        return token.text == ";" or (token.text == "}" and chunk.has_function_body)

    def _skip_unknown(self, token: Token) -> bool:
        """Step over what the parsers do not know; return whether there was any."""
        if token.text in _DROPPED_WORDS:
            self._next += 1
            return True
        following = self._text(self._next + 1)
        if token.text == "[" and following == "[":
            self._note(self._skip_group(self._next))
        elif token.text in _DROPPED_CALLS:
            start = self._next + 1
            while self._text(start) in ("volatile", "__volatile__"):
                start += 1
            if self._text(start) != "(":
                return False
            self._note([token.text, *self._skip_group(start)])
        else:
            return False
        return True

    def _note(self, words: list[str]) -> None:
        """Keep what the dropped attribute says about the whole declaration."""
        # A deprecated field or enumerator does not make its struct deprecated.
        if not self._open and _DEPRECATED.intersection(words):
            self._chunk.deprecated = True
        if _LAYOUT.intersection(words):
            self._chunk.special_layout = True

    def _skip_group(self, start: int) -> list[str]:
        """Move past the bracket at ``start`` and its match; return the words in it."""
        depth, words = 0, []
        for position in range(start, len(self._tokens)):
            text = self._tokens[position].text
            words.append(text)
            depth += (text in _CLOSING) - (text in _CLOSING.values())
            if depth == 0:
                self._next = position + 1
                return words
        token = self._tokens[start]
        raise BindgenError(f"{token.file}:{token.line}: the bracket {token.text!r} is never closed")

    def _text(self, position: int) -> str:
        return self._tokens[position].text if position < len(self._tokens) else ""
