"""Pictures of the cache: every sequence has its lane, shared cells can be told from others, and no name breaks anything."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.engine.cache_picture import svg, text
from causerie.engine.stats import CacheEntry, CacheMap

SVG = "{http://www.w3.org/2000/svg}"


def entry(seq: int, name: str, *cells: int, owned: bool = True, busy: bool = False) -> CacheEntry:
    return CacheEntry(seq=seq, name=name, owned=owned, busy=busy, cells=cells)


FORKED = CacheMap(
    64,
    (
        entry(0, "", 0, 1, 2, 20, owned=False),
        entry(1, "branch 10", *range(5), *range(10, 16)),
        entry(2, "branch 9", *range(10)),
    ),
)
EMPTY = CacheMap(64, ())

names = st.text(max_size=30)
maps = st.builds(
    lambda n, entries: CacheMap(n, tuple(CacheEntry(i, *e[:3], tuple(c for c in e[3] if c < n)) for i, e in entries)),
    st.integers(1, 5000),
    st.lists(
        st.tuples(names, st.booleans(), st.booleans(), st.lists(st.integers(0, 4999), unique=True, max_size=40)),
        max_size=6,
    ).map(lambda entries: list(enumerate(entries))),
)


def lanes(picture: str) -> list[ET.Element]:
    root = ET.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    return [group for group in root.iter(f"{SVG}g") if group.get("class") == "sequence"]


def rectangles(lane: ET.Element, kind: str) -> list[ET.Element]:
    return [rect for rect in lane.iter(f"{SVG}rect") if rect.get("class") == kind]


def test_a_lane_shows_which_cells_are_a_sequences_own_and_which_are_shared() -> None:
    lines = text(FORKED, 80).splitlines()
    assert lines[0] == "64 cells: 17 used, 5 of them shared; 47 free."
    assert lines[1].split() == ["branch", "9", "=====#####...........", "10"]
    assert lines[2].split() == ["branch", "10", "=====.....######.....", "11"]
    assert lines[3].split() == ["(kept)", "===.................#", "4"]
    assert lines[4] == "One character is 1 cell: # its own, = shared with others, . not its own, or free."
    assert lines[5].startswith("(kept): belongs to nobody now")


def test_many_cells_share_a_character() -> None:
    lines = text(CacheMap(4096, (entry(0, "a", *range(100)), entry(1, "b", *range(51), 200))), 60).splitlines()
    assert len(lines[1]) <= 60
    assert set(lines[1].split()[1]) == {"=", "+", "#", "."}
    assert "One character is 4 cells: " in lines[3]
    assert "+ both" in lines[3]


def test_an_empty_cache_is_a_sentence() -> None:
    assert text(EMPTY) == "64 cells: 0 used, 0 of them shared; 64 free."
    assert lanes(svg(EMPTY)) == []


@given(maps, st.integers(1, 200))
def test_lanes_fit_the_width(cache_map: CacheMap, width: int) -> None:
    drawn = text(cache_map, width)
    rows = drawn.splitlines()[1 : 1 + len(cache_map.entries)]
    assert len(rows) == len(cache_map.entries)
    assert all(len(row) <= max(width, 24 + 8 + 4 + 4) for row in rows)
    assert all(character.isprintable() or character == "\n" for character in drawn)


@given(maps)
def test_the_picture_is_well_formed_whatever_the_names(cache_map: CacheMap) -> None:
    found = lanes(svg(cache_map))
    assert len(found) == len(cache_map.entries)


def test_the_picture_labels_every_sequence_in_a_colour_of_its_own() -> None:
    found = lanes(svg(FORKED))
    assert [lane.findtext(f"{SVG}text") for lane in found] == ["branch 9", "branch 10", "(kept)"]
    titles = [lane.findtext(f"{SVG}title") for lane in found]
    assert titles == ["branch 9: 10 cells", "branch 10: 11 cells", "(kept): 4 cells"]
    colours = [{rect.get("fill") for rect in rectangles(lane, "own")} for lane in found]
    assert [len(colour) for colour in colours] == [1, 1, 1]
    assert len(set.union(*colours)) == 3


def test_the_picture_shows_shared_cells() -> None:
    nine, ten, kept = lanes(svg(FORKED))
    for lane, end in ((nine, 5), (ten, 5), (kept, 3)):
        (shared,) = rectangles(lane, "shared")
        assert float(shared.get("width", 0)) == pytest.approx(720 / 21 * end, abs=0.1)
        assert float(shared.get("fill-opacity", 1)) < 1


def test_names_are_escaped_and_long_ones_cut() -> None:
    name = "<script>&\x00\ud800" + "x" * 40
    (lane,) = lanes(svg(CacheMap(4, (entry(0, name, 1),))))
    assert lane.findtext(f"{SVG}title") == "<script>&\ufffd\ufffd" + "x" * 40 + ": 1 cells"
    assert lane.findtext(f"{SVG}text") == "<script>&\ufffd\ufffd" + "x" * 10 + "..."
    assert text(CacheMap(4, (entry(0, "a\x1b[31m\nb", 1),))).splitlines()[1].startswith("a?[31m?b  ")


def test_who_is_busy_is_said() -> None:
    busy = CacheMap(4, (entry(3, "", 1, busy=True),))
    assert "sequence 3 (busy)" in text(busy)


def test_a_notebook_finds_the_picture() -> None:
    assert FORKED._repr_svg_() == svg(FORKED)
