"""What is asked for: the same words for every system."""

from __future__ import annotations

TOPICS = (
    "the sea", "an old clock", "a lighthouse", "winter", "a lost dog", "the moon", "a train", "bread",
    "a violin", "the desert", "a garden", "a map", "the harbour", "a letter", "a mountain", "rain",
)  # fmt: skip
SENTENCE = "You are a careful storyteller who likes long, detailed stories with many turns and plain words. "
SENTENCE_TOKENS = 19  # SmolLM2's
SYSTEM = "You are a helpful assistant."  # some templates add one of their own where there is none
QUESTION_TOKENS = 39  # with this system text, and the template around both
ALONE_TOKENS = 33  # a question behind another system text, with the template around both

SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 1}
"""llama.cpp's own defaults, named, so that every system has the same."""

SCHEMA = {
    "type": "array",
    "minItems": 40,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "home": {"type": "string"},
            "sails": {"type": "boolean"},
        },
        "required": ["name", "age", "home", "sails"],
        "additionalProperties": False,
    },
}
"""Long enough that a reply reaches its limit of tokens before the array may end."""


def question(i: int) -> str:
    """A question whose greedy answer is longer than 128 tokens."""
    return f"Write a very long and detailed story about {TOPICS[i % len(TOPICS)]}, number {i}. Begin at once."


def text_of(tokens: int) -> str:
    """A text of about so many tokens."""
    return SENTENCE * max(1, round(tokens / SENTENCE_TOKENS))
