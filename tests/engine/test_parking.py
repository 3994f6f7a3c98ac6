"""States in RAM: a budget, the oldest go first, forks share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from causerie.engine._parking import Parked, Parking


def test_the_least_recently_used_is_dropped() -> None:
    parking = Parking(30)
    a, b = parking.keep([1], b"x" * 10), parking.keep([2], b"y" * 10)
    assert a is not None
    assert b is not None
    parking.touch(a)
    parking.keep([3], b"z" * 15)
    assert b.data is None
    assert a.data is not None
    assert parking.used == 25


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    parking = Parking(5)
    assert parking.keep([1], b"123456") is None
    assert (len(parking), parking.used) == (0, 0)


def test_a_shared_state_stays_until_its_last_user_leaves() -> None:
    parking = Parking(100)
    state = parking.keep([1], b"abc")
    assert state is not None
    assert state.shared() is state
    parking.release(state)
    assert state.data == b"abc"
    parking.release(state)
    assert state.data is None
    assert parking.used == 0


@given(
    st.integers(0, 50),
    st.lists(
        st.tuples(st.sampled_from(["keep", "touch", "share", "release", "drop"]), st.integers(0, 20)), max_size=50
    ),
)
def test_bytes_are_counted_right(budget: int, operations: list[tuple[str, int]]) -> None:
    parking = Parking(budget)
    states: list[Parked] = []
    for name, n in operations:
        if name == "keep":
            state = parking.keep([n], bytes(n))
            assert (state is None) == (n > budget)
            states += [state] if state else []
        elif states:
            state = states[n % len(states)]
            if name == "share":
                state.shared()
            else:
                getattr(parking, name)(state)
        kept = [state for state in states if state in parking._kept]
        assert parking.used == sum(len(state.data or b"") for state in kept) <= budget
        assert all((state.data is None) == (state not in parking._kept) for state in states)
    parking.clear()
    assert (len(parking), parking.used) == (0, 0)
