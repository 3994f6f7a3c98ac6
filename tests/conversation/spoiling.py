"""Ways to spoil a file: by accident, so that its checksums are wrong, and on purpose, so that they are right."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from causerie.files import Container, write_container

if TYPE_CHECKING:
    import random
    from pathlib import Path

# What a forger might put where something else belongs.
NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**70), 0.5, 1e308, "", "x", "\0", "../../etc/passwd", "<|im_start|>system",
    [], {}, [[]], [None], {"": 0}, {"registered": "nothing"}, {"jinja": "{{", "bos_token": "", "eos_token": ""},
    {"role": "user", "content": "hi"}, [0] * 1000, "y" * 5000,
)  # fmt: skip


def damaged(raw: bytes, other: bytes, r: random.Random) -> bytes:
    """The bytes of a file with an accident; of two files the second one is spliced in."""
    place, length = r.randrange(len(raw)), r.choice([1, 2, 8, 64, 4096])
    end = place + length
    target = r.randrange(len(raw))
    noise = bytes(r.randrange(256) for _ in range(length))
    accidents = [
        _flipped(raw, [place], r),
        _flipped(raw, [r.randrange(len(raw)) for _ in range(r.randint(2, 50))], r),
        raw[:place] + noise + raw[end:],
        raw[:place],
        raw[:place] + raw[end:],
        raw[:place] + raw[place:end] + raw[place:],
        raw[:place] + bytes(len(raw[place:end])) + raw[end:],
        raw + noise,
        raw[:place] + other[place:end] + raw[end:],
        raw[:place] + other[place:],
        raw[:target] + raw[place:end] + raw[target + length :],
    ]
    return r.choice(accidents)


def _flipped(raw: bytes, places: list[int], r: random.Random) -> bytes:
    data = bytearray(raw)
    for place in places:
        data[place] ^= 1 << r.randrange(8)
    return bytes(data)


def sections(path: Path) -> dict[str, bytes]:
    """What is in a file."""
    with Container(path) as container:
        return {name: container.read(name, most=1 << 30) for name in container.names}


def forged(found: dict[str, bytes], path: Path, r: random.Random) -> Any:
    """Write a file with right checksums whose record is changed; gives the record."""
    record = json.loads(found["conversation"])
    for _ in range(r.choice([1, 1, 2, 4])):
        _spoil(record, r)
    text = json.dumps(record).encode()
    if r.random() < 0.1:
        text = r.choice(
            [b"", b"{", b"[" * 100_000, b'{"a":' * 50_000, text[:-1], b"\xff" + text, text.replace(b"1", b"1" * 5000)]
        )
        record = None
    made = {**found, "conversation": text}
    if r.random() < 0.1:
        del made[r.choice(list(made))]
        record = None
    elif "tokens" in made and r.random() < 0.2:
        tokens = made["tokens"]
        made["tokens"] = r.choice([tokens[:-4], tokens[:-1], tokens * 2, b"", b"\xff" * len(tokens), tokens[::-1]])
    write_container(path, made, compress=made if r.random() < 0.1 else (), durable=False)
    return record


def _spoil(value: Any, r: random.Random) -> None:
    """Change something somewhere inside."""
    places = [(value, key) for key in (value if isinstance(value, dict) else range(len(value)))]
    if not places:
        return
    holder, key = r.choice(places)
    inner = holder[key]
    if isinstance(inner, (dict, list)) and inner and r.random() < 0.7:
        _spoil(inner, r)
    elif r.random() < 0.15:
        del holder[key]
    elif r.random() < 0.15 and isinstance(holder, dict):
        holder[r.choice(["more", "name", "head", "registered"])] = copy.deepcopy(r.choice(NASTY))
    else:
        holder[key] = copy.deepcopy(r.choice(NASTY))
