"""Results of tools as text: what is a str as it is, everything else as JSON; and errors in a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from causerie import ToolError
from causerie.chat.tool_result import error_text, result_text


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(str, Enum):
    YES = "yes"


@dataclass
class Place:
    name: str
    color: Color


class Model:
    """Stands for a pydantic model."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (Word.YES, "yes"),
        (None, "null"),
        ({"t": 3.5, "ü": [True]}, '{"t": 3.5, "ü": [true]}'),
        (Place("Oslo", Color.RED), '{"name": "Oslo", "color": "red"}'),
        (Model(), '{"mode": "json"}'),
        ([Level.HIGH, Word.YES], '[3, "yes"]'),
        ({date(2026, 1, 2): 1}, None),
        ([date(2026, 1, 2), timedelta(minutes=1)], '["2026-01-02", 60.0]'),
        ([UUID(int=1), Decimal("1.10"), PurePosixPath("/a")], '["00000000-0000-0000-0000-000000000001", "1.10", "/a"]'),
        (MappingProxyType({"a": frozenset({1})}), '{"a": [1]}'),
        ([np.float32(0.5), np.arange(3)], "[0.5, [0, 1, 2]]"),
        (float("nan"), None),
        (b"bytes", None),
        ("\ud800", None),
        (Place, None),
    ],
)
def test_results(value: Any, text: str | None) -> None:
    if text is None:
        with pytest.raises((TypeError, ValueError)):
            result_text(value)
    else:
        assert result_text(value) == text


def test_results_that_hold_themselves_are_refused() -> None:
    own: list[Any] = []
    own.append(own)
    with pytest.raises(ValueError):
        result_text(own)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        result_text(deep)


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")
    made = pydantic.create_model("M", day=(date, ...))(day=date(2026, 1, 2))
    assert json.loads(result_text([made])) == [{"day": "2026-01-02"}]


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("a reason", "Error: a reason"),
        (ValueError("too big"), "Error: ValueError: too big"),
        (KeyError(), "Error: KeyError"),
        (ToolError("tool f: invalid"), "Error: tool f: invalid"),
        (BrokenError(), "Error: BrokenError"),
        (ValueError("\ud800"), "Error: ValueError: ?"),
    ],
)
def test_errors(error: BaseException | str, text: str) -> None:
    assert error_text(error) == text


def test_long_errors_are_cut() -> None:
    text = error_text(ValueError("x" * 10_000))
    assert len(text) < 600
    assert text.endswith("x…")
