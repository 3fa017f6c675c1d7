"""Fingerprints of errors: errors that differ only in quoted names, ids and numbers are equal."""

import re
from functools import lru_cache
from hashlib import md5
from typing import Final

LONGEST_SAMPLE: Final = 2_000
LONGEST_SHAPE: Final = 500
SHAPES: Final = (
    (r"'[^']*'|\"[^\"]*\"", "'?'"),
    (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "#"),
    (r"\b0x[0-9a-fA-F]+\b|\b(?=\w*[0-9])\w{12,}\b", "#"),
    (r"[0-9]+([.,:][0-9]+)*", "#"),
    (r"\s+", " "),
)
"""Patterns of text that may differ between equal errors: quoted names, ids, numbers."""
PATTERNS: Final = [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in SHAPES]


@lru_cache(10_000)
def fingerprint(line: str) -> str:
    """Return the MD5 of an error's first line without quoted names, ids and numbers.

    `spark_errors` computes the same.
    """
    for pattern, replacement in PATTERNS:
        line = pattern.sub(replacement, line)
    return md5(line.encode(), usedforsecurity=False).hexdigest()
