"""Many sequences of token ids on one context: who runs when, and whose tokens are in which cells. No text here."""

from causerie.engine.adapters import Adapter, AdaptersLike, as_adapters
from causerie.engine.engine import TokenEngine
from causerie.engine.generation import FinishReason, Forcing, Generation, TokenSink
from causerie.engine.sequence import Sequence
from causerie.engine.sequence_state import SequenceState
from causerie.engine.settings import Setting
from causerie.engine.stats import CacheEntry, CacheMap, EngineStats

__all__ = [
    "Adapter",
    "AdaptersLike",
    "CacheEntry",
    "CacheMap",
    "EngineStats",
    "FinishReason",
    "Forcing",
    "Generation",
    "Sequence",
    "SequenceState",
    "Setting",
    "TokenEngine",
    "TokenSink",
    "as_adapters",
]
