"""The command line: `rllib-shared train|evaluate|bench`. Thin: each command calls one function below this file."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="rllib-shared",
    help="Train teams of many agents that share a policy, with critics that see more than the actors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: instead of `sys.argv[1:]`.
    """
    app(args=arguments)
