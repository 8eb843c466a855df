"""Words for error messages: short lists of names, and the nearest known name to a wrong one."""

from __future__ import annotations

import difflib
from typing import Any


def preview(names: Any, limit: int = 6) -> str:
    """A short list of names for a message: the first few, then how many more."""
    shown = [repr(name) for name in names]
    more = f", ... ({len(shown)} in all)" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more


def unknown(what: str, given: Any, known: Any) -> str:
    """The sentence for a name that is not known, with the nearest names that are."""
    known = [str(name) for name in known]
    near = difflib.get_close_matches(str(given), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else f"known: {preview(known, 20)}"
    return f"unknown {what} {given!r}; {hint}"
