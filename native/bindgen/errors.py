"""The one exception that ends a run of the generator."""


class BindgenError(Exception):
    """Headers cannot be turned into bindings; the message names header, line and text."""
