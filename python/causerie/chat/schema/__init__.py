"""JSON schemas, Python types and regular expressions as grammars that loosen nothing. Pure Python."""
