"""Time per token with and without a constraint, in turns, in a process of its own; prints a JSON object."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import causerie
from causerie.chat.response_format import as_response_format

WORD = {"type": "string", "minLength": 1, "maxLength": 40}
MONEY = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 0, "maximum": 100000},
        "currency": {"enum": ["EUR", "USD", "NOK", "JPY"]},
    },
    "required": ["amount", "currency"],
    "additionalProperties": False,
}
FIELDS: dict[str, Any] = {
    "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"},
    "title": WORD,
    "description": {"type": "string", "maxLength": 200},
    "status": {"enum": ["draft", "open", "in progress", "done", "cancelled"]},
    "priority": {"type": "integer", "minimum": 1, "maximum": 5},
    "created": {"type": "string", "format": "date-time"},
    "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    "customer": {
        "type": "object",
        "properties": {
            "name": WORD,
            "kind": {"enum": ["person", "company"]},
            "email": {"type": "string", "pattern": "^[a-z]+@[a-z]+\\.(com|org)$"},
            "phone": {"type": ["string", "null"], "maxLength": 20},
            "address": {
                "type": "object",
                "properties": {"street": WORD, "city": WORD, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
                "required": ["street", "city", "zip"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "kind", "email", "phone", "address"],
        "additionalProperties": False,
    },
    "items": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": WORD,
                "count": {"type": "integer", "minimum": 1, "maximum": 99},
                "colour": {"enum": ["red", "green", "blue", "black"]},
                "price": MONEY,
            },
            "required": ["name", "count", "colour", "price"],
            "additionalProperties": False,
        },
        "minItems": 1,
        "maxItems": 4,
    },
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 5},
    "total": MONEY,
    "paid": {"type": "boolean"},
    "notes": {"type": "string"},
}
ORDER = {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False}
PROMPT = "Invent an order in a web shop, with all details, and describe it at length."


def per_token(chat: causerie.Conversation, tokens: int, **options: Any) -> tuple[float, int]:
    """Milliseconds for each token behind the first one, and how many they were."""
    reply = chat.send(PROMPT, max_tokens=tokens, **options)
    rate = reply.timings.tokens_per_second
    assert rate is not None
    return 1e3 / rate, reply.usage.completion_tokens


def main() -> None:
    """Print the times of each round: a free reply, and one that follows the schema."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--sampling", choices=["greedy", "default"], default="greedy")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    rounds: list[dict[str, float]] = []
    with causerie.Engine(args.model, n_threads=args.threads, n_ctx=2048) as engine:
        engine.conversation().send("Hello", max_tokens=8)
        start = time.perf_counter()
        form = as_response_format(ORDER)
        made = time.perf_counter()
        for number in range(args.rounds + 1):
            options = {"temperature": 0} if args.sampling == "greedy" else {"seed": number}
            constrained, n = per_token(engine.conversation(), args.tokens, response_format=form, **options)
            free, _ = per_token(engine.conversation(), n, **options)
            rounds.append({"free_ms": free, "constrained_ms": constrained, "tokens": n})
        again = time.perf_counter()
        chat = engine.conversation()
        stream = chat.stream(PROMPT, response_format=form, max_tokens=2, temperature=0)
        first_again = time.perf_counter() - again
        stream.close()
    first, *others = rounds
    print(
        json.dumps({"schema_ms": 1e3 * (made - start), "begin_ms": 1e3 * first_again, "first": first, "rounds": others})
    )


if __name__ == "__main__":
    main()
