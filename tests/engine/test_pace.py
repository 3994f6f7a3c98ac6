"""How much of a prompt goes beside running answers."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from causerie.engine._pace import Pace


def test_a_prompt_alone_fills_the_step() -> None:
    assert Pace(512, 2.0).budget(0) == 512


def test_it_starts_carefully_beside_answers() -> None:
    assert 1 <= Pace(512, 2.0).budget(4) <= 64


def test_it_learns_what_fits_into_the_stretch() -> None:
    pace = Pace(512, 3.0)
    for _ in range(20):
        pace.measured(4, 0, 0.010)  # ten milliseconds without a prompt
        pace.measured(4, 50, 0.015)  # a tenth of one for each prompt token
    assert pace.budget(4) == 200  # 10 ms and two times as much again


@example(512, [(0, 0, 0.1)], 4)
@given(
    st.integers(1, 600),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 500), st.floats(1e-9, 100)), max_size=30),
    st.integers(0, 700),
)
def test_there_is_always_room_for_one_token_and_never_for_too_many(
    most: int, steps: list[tuple[int, int, float]], rows: int
) -> None:
    pace = Pace(most, 2.5)
    for measured in steps:
        pace.measured(*measured)
    assert 1 <= pace.budget(rows) <= max(1, most - rows)
