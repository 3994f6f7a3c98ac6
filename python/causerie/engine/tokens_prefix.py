"""How many tokens two sequences have in common at their start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    TokenIds: TypeAlias = Sequence[int] | NDArray[Any]

__all__ = ["common_prefix_length"]

_FIRST_BLOCK = 64


def common_prefix_length(a: TokenIds, b: TokenIds) -> int:
    """Length of the longest common prefix of two sequences of token ids.

    Compares blocks that double in size, each at the speed of C, so a difference near the start costs next to nothing
    and equal sequences one pass. Two numpy arrays are compared without a copy; an array and a list in lists.

    Args:
        a: a list, tuple or one-dimensional integer array.
        b: the same; it need not be of the same kind.

    Raises:
        ValueError: an array of more than one dimension.
    """
    for ids in (a, b):
        if getattr(ids, "ndim", 1) != 1:
            raise ValueError(f"token ids must be one-dimensional, not of shape {getattr(ids, 'shape', None)}")
    count = min(len(a), len(b))
    if hasattr(a, "dtype") and hasattr(b, "dtype"):
        return _of_arrays(a, b, count)
    return _of_lists(_as_list(a), _as_list(b), count)


def _as_list(ids: Any) -> list[int]:
    if isinstance(ids, list):
        return ids
    values: list[int] = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    return values


def _of_arrays(a: Any, b: Any, count: int) -> int:
    low, size = 0, _FIRST_BLOCK
    while low < count:
        high = min(low + size, count)
        different = a[low:high] != b[low:high]
        first = int(different.argmax())
        if different[first]:
            return low + first
        low, size = high, 2 * size
    return count


def _of_lists(a: list[int], b: list[int], count: int) -> int:
    low, size = 0, _FIRST_BLOCK
    while low < count:
        high = min(low + size, count)
        if a[low:high] != b[low:high]:
            break
        low, size = high, 2 * size
    else:
        return count
    while high - low > 1:  # somewhere in this block: halve it
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
