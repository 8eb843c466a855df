"""Options that take several values after one another: `--sharing team agent` for `--sharing team --sharing agent`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption

ARGUMENTS = "arguments"


class ManyValuesCommand(TyperCommand):
    """A command whose repeatable options also take their values separated by spaces, up to the next option.

    What was typed is kept as `ctx.meta["arguments"]`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer's."""
        ctx.meta[ARGUMENTS] = list(args)
        options = [option for option in self.params if isinstance(option, TyperOption) and option.multiple]
        return super().parse_args(ctx, one_value_each(args, {name for option in options for name in option.opts}))


def one_value_each(arguments: list[str], repeatable: set[str]) -> list[str]:
    """Arguments in which each value of a repeatable option follows the option's name.

    Args:
        arguments: as typed; `--` ends the values of an option.
        repeatable: names of such options.
    """
    spread: list[str] = []
    option, values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, values = argument if argument in repeatable else "", 0
        elif option:
            values += 1
            if values > 1:
                spread.append(option)
        spread.append(argument)
    return spread
