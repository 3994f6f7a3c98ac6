"""Names for transforms, as files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causerie.conversation import KeywordRemover, register_transform, transform_name, transform_named
from causerie.conversation import transform_names as module

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_registered", {})


class Cleaner:
    def __init__(self, word: str) -> None:
        self.word = word

    def clean(self, text: str) -> str:
        return text.replace(self.word, "")


def doubled(chunks: Iterator[str]) -> Iterator[str]:
    for chunk in chunks:
        yield chunk * 2


def test_lead_there_and_back() -> None:
    given = {"upper": str.upper, "method": Cleaner("x").clean, "remover": KeywordRemover("x"), "doubled": doubled}
    for name, transform in given.items():
        register_transform(name, transform)
    assert {name: transform_named(name) for name in given} == given
    assert {transform_name(transform): transform for transform in given.values()} == given
    assert transform_name(str.lower) is None
    assert transform_name(KeywordRemover("x")) is None
    assert transform_name(Cleaner("x").clean) is None


def test_a_method_is_known_however_often_it_is_looked_up() -> None:
    cleaner = Cleaner("x")
    register_transform("clean", cleaner.clean)
    assert transform_name(cleaner.clean) == "clean"


def test_one_name_has_one_meaning_until_it_is_replaced() -> None:
    register_transform("case", str.upper)
    register_transform("case", str.upper)
    with pytest.raises(ValueError, match="another transform is called 'case'"):
        register_transform("case", str.lower)
    assert transform_named("case") is str.upper
    register_transform("case", str.lower, replace=True)
    assert transform_named("case") is str.lower


@pytest.mark.parametrize(("name", "transform"), [("", str), (3, str), ("a", None), ("a", "b")])
def test_wrong_arguments(name: object, transform: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        register_transform(name, transform)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="registered: none"):
        transform_named("a")
