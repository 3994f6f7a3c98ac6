"""Files of our own: replaced as a whole or not at all, and read without trusting them. No pointers, no models."""

from causerie.files.container import Container, write_container
from causerie.files.replacing import replacing

__all__ = ["Container", "replacing", "write_container"]
