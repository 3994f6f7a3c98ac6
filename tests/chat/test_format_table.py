"""The table of formats in docs/templates.md says what the tests read."""

from __future__ import annotations

from pathlib import Path

from reply_formats import FORMATS, Format

PAGE = Path(__file__).resolve().parents[2] / "docs" / "templates.md"


def row(name: str, form: Format) -> str:
    templates = ", ".join(f"`{template}`" for template in form.templates)
    calls = "" if form.calls is None else "several" if form.many else "one"
    return f"| {name} | {templates} | {'yes' if form.think[1] else ''} | {calls} |"


def test_the_table_of_formats_is_that_of_the_tests() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    start = lines.index("| format | templates | thinking | calls in a reply |") + 2
    found = lines[start : lines.index("", start)]
    assert found == [row(name, form) for name, form in FORMATS.items()]


def test_it_names_how_each_was_checked() -> None:
    text = PAGE.read_text("utf-8")
    for test in ("tests/chat/test_chat_template_shipped.py", "tests/chat/test_parse_formats.py"):
        assert test in text
        assert (PAGE.parents[1] / test).is_file()
