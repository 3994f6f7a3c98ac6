"""Model files by name: a path, an alias, or a file on the Hugging Face Hub; fetched once, verified, then cached."""

from __future__ import annotations

from causerie.models.catalog import Alias, aliases
from causerie.models.names import resolve
from causerie.models.storage import CachedModel, default_cache_dir, list_cached, remove

__all__ = ["Alias", "CachedModel", "aliases", "default_cache_dir", "list_cached", "remove", "resolve"]
