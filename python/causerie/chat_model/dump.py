"""What all data classes of the facade have in common: they turn into plain dicts and lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

__all__ = ["Dumped"]


class Dumped:
    """A data class with `model_dump`, as pydantic's models have it; pydantic is not needed."""

    __slots__ = ()

    def model_dump(self) -> dict[str, Any]:
        """The fields, all the way down, in new dicts and lists: what JSON can express."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]  # those who inherit are data classes
            if field.metadata.get("dump", True)
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Dumped):
        return value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
