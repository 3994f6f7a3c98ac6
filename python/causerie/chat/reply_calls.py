"""The tool calls of one reply: complete, and with ids that differ."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from causerie.chat.tool_call import ToolCall
from causerie.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causerie.chat.chat_template import Prompt

__all__ = ["ReplyCalls"]

_ID_SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 9  # what Mistral's templates insist on


class ReplyCalls:
    """The calls of one reply, in their order.

    Args:
        prompt: what the reply answers.
    """

    def __init__(self, prompt: Prompt) -> None:
        self._seed = prompt.text
        self.done: list[ToolCall] = []

    def _filled_id(self, index: int, avoid: set[str]) -> str:
        """An id for a call whose format has none: the same whenever the same prompt is answered."""
        from hashlib import sha256  # OpenSSL is some 4 MB, for a call that few formats leave without an id

        while True:
            number = int.from_bytes(sha256(f"{index} {self._seed}".encode("utf-8", "replace")).digest()[:8], "big")
            signs = []
            for _ in range(_ID_LENGTH):
                number, sign = divmod(number, len(_ID_SIGNS))
                signs.append(_ID_SIGNS[sign])
            if (found := "".join(signs)) not in avoid:
                return found
            index += 1_000_000

    def complete(self, found: Mapping[str, str]) -> ToolCall:
        """The next call, whose parts are all there.

        Raises:
            TemplateError: its arguments are not a JSON object.
        """
        used = {call.id for call in self.done}
        call_id = found["id"]
        if not call_id or call_id in used:
            call_id = self._filled_id(len(self.done), used)
        try:
            arguments = json.loads(found["arguments"] or "{}")
            call = ToolCall(call_id, found["name"], arguments)
        except (ValueError, TypeError, RecursionError) as error:
            raise TemplateError(f"the reply's call of {found['name']!r} is malformed or breaks off: {error}") from error
        self.done.append(call)
        return call
