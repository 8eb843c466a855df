"""The command line: `rllib-shared train|evaluate|bench`. Thin: each command calls one function below this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="rllib-shared",
    help="Train teams of many agents that share a policy, with critics that see more than the actors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
def bench(
    env: Annotated[str, typer.Option(help="Environment.")] = "battle_v4",
    map_size: Annotated[int | None, typer.Option(help="Side of the map; 45 gives battle 81 against 81.")] = None,
    agents_per_team: Annotated[int | None, typer.Option(help="Exact team size, for battle_v4.")] = None,
    hidden: Annotated[int, typer.Option(help="Width of the two hidden layers, of policy and value each.")] = 256,
    env_steps: Annotated[int, typer.Option(help="Env steps per iteration, of all copies together.")] = 100,
    num_envs: Annotated[int, typer.Option(help="Env copies, the same number for stock RLlib.")] = 4,
    iterations: Annotated[int, typer.Option(help="Measured iterations, after one to warm up.")] = 5,
    stock_central: Annotated[
        bool, typer.Option("--stock-central", help="Also stock RLlib with the state in every agent's observation.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Measure this row only: team, team_state, stock, stock_central. Repeatable."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the numbers here.")
    ] = None,
) -> None:
    """Measure agent steps per second against stock RLlib, on the same work.

    Each row runs in a process of its own, one after the other. Leave the machine alone meanwhile: its load is watched.

    Example: `rllib-shared bench --env battle_v4 --map-size 45 --hidden 256 --json bench.json`
    """
    from rich.console import Console

    from rllib_shared.benchmark.run import choose_rows, run
    from rllib_shared.benchmark.table import show
    from rllib_shared.benchmark.work import plan

    errors = Console(stderr=True)
    env_config = {"map_size": map_size, "agents_per_team": agents_per_team}
    try:
        rows = choose_rows(only, stock_central)
        work = plan(
            env,
            {key: value for key, value in env_config.items() if value is not None},
            hidden=hidden,
            env_steps=env_steps,
            num_envs=num_envs,
            iterations=iterations,
        )
        if json_file is not None:
            json_file.parent.mkdir(parents=True, exist_ok=True)
    except (ValueError, ImportError, OSError) as error:
        errors.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    with errors.status("") as status:
        result = run(work, rows, announce=lambda row: status.update(f"measuring {row} ..."))
    show(result, Console())
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: instead of `sys.argv[1:]`.
    """
    app(args=arguments)
