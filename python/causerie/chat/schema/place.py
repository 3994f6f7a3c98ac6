"""One place of a JSON schema, known by its path (pure Python)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from causerie.chat.schema.keywords import json_path

__all__ = ["Place", "World"]


@dataclass(frozen=True)
class Place:
    """A schema inside the schema, known by its path."""

    path: str
    schema: Any = field(compare=False)

    def child(self, *keys: str | int) -> Place:
        """The part under these keys."""
        path, schema = self.path, self.schema
        for key in keys:
            path, schema = json_path(path, key), schema[key]
        return Place(path, schema)

    def children(self, keyword: str) -> list[Place]:
        """The parts of a keyword that has a list of schemas."""
        return [self.child(keyword, i) for i in range(len(self.schema.get(keyword, ())))]


World = tuple[Place, ...]
"""Places that all have to hold, without any choice left."""
