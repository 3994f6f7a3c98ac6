"""Reads C headers and writes the cffi module, its exception guard and its type stub."""
