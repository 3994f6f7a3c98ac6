"""Validation of JSON values against a schema, for what no grammar enforces; by jsonschema, which is optional."""

from __future__ import annotations

import importlib
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from causerie.chat.schema.keywords import json_path
from causerie.errors import SchemaError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SchemaValidator"]


class SchemaValidator:
    """Checks values against a JSON schema (draft 2020-12).

    Args:
        schema: the schema.
        why: what needs it, for the message where jsonschema is not installed.

    Raises:
        UnsupportedError: jsonschema is not installed.
        SchemaError: it is not a schema.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, why: str = "validation") -> None:
        try:
            jsonschema: Any = importlib.import_module("jsonschema")
        except ImportError:
            raise UnsupportedError(
                f"{why} needs the package jsonschema: pip install 'causerie[schema]'", package="jsonschema"
            ) from None
        self._failure = jsonschema.exceptions.best_match
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            path = _path(error.absolute_path)
            raise SchemaError(f"{path}: {error.message:.300}", path=path) from None
        self._validator = jsonschema.Draft202012Validator(_exact(schema))

    def check(self, value: Any) -> None:
        """Raise unless the value matches.

        Raises:
            SchemaError: `.path` is the path in the value, `.schema_path` that in the schema.
        """
        try:
            error = self._failure(self._validator.iter_errors(_exact(value)))
        except RecursionError:
            raise SchemaError("$: the value is nested too deeply to be validated", path="$") from None
        except re.error as error:
            raise SchemaError(f"$: Python cannot read the pattern {error.pattern!r}: {error}", path="$") from None
        if error is not None:
            path, where = _path(error.absolute_path), _path(error.absolute_schema_path)
            raise SchemaError(f"{path}: {error.message:.300} (in the schema: {where})", path=path, schema_path=where)


def _exact(value: Any) -> Any:
    """With decimal numbers, so that 0.3 is a multiple of 0.1."""
    return json.loads(json.dumps(value), parse_float=Decimal)


def _path(keys: Any) -> str:
    path = "$"
    for key in keys:
        path = json_path(path, key)
    return path
