"""Anything that is wrong with what the user gave, as one sentence and with exit code 2."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import typer

_PACKAGE = Path(__file__).resolve().parent.parent
_INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")})


class UsageError(Exception):
    """What the user gave cannot work; the message is complete and needs no traceback."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn whatever fails inside into a `UsageError`.

    The message is the error's own sentence; errors from the user's own code come with their traceback, as without it
    nobody finds them.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(_explained(error)) from error


@contextmanager
def misuse_exits() -> Iterator[None]:
    """End a command with the sentence of a `UsageError` on stderr and exit code 2."""
    try:
        yield
    except UsageError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _explained(error: Exception) -> str:
    frames = [Path(frame.filename).resolve() for frame in traceback.extract_tb(error.__traceback__)]
    own_code = next((depth for depth, file in enumerate(frames) if _is_users(file)), None)
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    if own_code is not None:
        shown = traceback.format_exception(type(error), error, _below(error.__traceback__, own_code), chain=False)
        return "your own code raised an error:\n" + "".join(shown).rstrip()
    if not frames or frames[-1].is_relative_to(_PACKAGE) or "rllib" in frames[-1].parts:
        return str(error).strip()
    return f"{type(error).__name__}: {error} (raised in {'/'.join(frames[-1].parts[-3:])})"


def _is_users(file: Path) -> bool:
    """Neither of this package nor installed nor something like `<string>`."""
    return file.is_file() and not any(file.is_relative_to(folder) for folder in (_PACKAGE, *_INSTALLED))


def _below(tb: TracebackType | None, depth: int) -> TracebackType | None:
    """The traceback without its first `depth` frames."""
    for _ in range(depth):
        tb = tb.tb_next if tb is not None else None
    return tb
