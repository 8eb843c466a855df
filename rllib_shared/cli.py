"""The command line: `rllib-shared train|evaluate|compare|export|bench`. Thin: each calls one function below this file.

The options of `compare` are in `comparison/command.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rllib_shared.comparison.command import compare
from rllib_shared.launching.many_values import ManyValuesCommand

app = typer.Typer(
    name="rllib-shared",
    help="Train teams of many agents that share a policy, with critics that see more than the actors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
def train(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file: Python, with a function config().")],
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Stop when KEY is at least VALUE: agent_steps, env_steps, iterations, hours or any result key, as "
            "env_runners/teams/red/win_rate. Repeatable; the first reached counts. Replaces the file's STOP.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a config value; dots for nesting: lr=1e-4, env_config.map_size=16, "
            "model_config.hidden=[64,64]. Repeatable.",
        ),
    ] = None,
    num_samples: Annotated[int | None, typer.Option(help="Trials to run.  [default: 1]", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the first trial; the others count up from it.")] = None,
    storage: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs go.  [default: runs]", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; otherwise the file's name and the time.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN_DIR", help="Continue this run from its last checkpoints; --stop may raise its limits."
        ),
    ] = None,
    num_env_runners: Annotated[
        int | None, typer.Option(help="Processes that sample; 0 samples and learns in one.")
    ] = None,
) -> None:
    """Train an experiment with Tune.

    Progress goes to stderr; the run's folder is the last line on stdout. Ctrl-C saves a checkpoint and ends.

    Example: `rllib-shared train experiments/battle.py --stop agent_steps=2e6 --set env_config.map_size=16`
    """
    import sys
    from contextlib import redirect_stdout

    from rllib_shared.launching.errors import UsageError, misuse_exits
    from rllib_shared.launching.tune_run import resume as resume_run
    from rllib_shared.launching.tune_run import train as train_run

    fixed = {
        "--set": overrides,
        "--num-samples": num_samples,
        "--seed": seed,
        "--storage": storage,
        "--name": name,
        "--num-env-runners": num_env_runners,
    }
    try:
        # Only the run's folder belongs on stdout, whatever an experiment or an actor prints.
        with misuse_exits(), redirect_stdout(sys.stderr):
            if resume is None:
                run, code = train_run(
                    file,
                    stop=stop or (),
                    overrides=overrides or (),
                    num_samples=1 if num_samples is None else num_samples,
                    seed=seed,
                    storage=storage or Path("runs"),
                    name=name,
                    num_env_runners=num_env_runners,
                )
            else:
                given = [option for option, value in fixed.items() if value not in (None, [])]
                if given:
                    raise UsageError(f"--resume continues a run as it was launched; leave out {', '.join(given)}")
                run, code = resume_run(file, resume, stop=stop or ())
    except KeyboardInterrupt:
        typer.echo("Stopped at once; what was saved before can be resumed with --resume.", err=True)
        raise typer.Exit(130) from None
    typer.echo(str(run))
    raise typer.Exit(code)


@app.command()
def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="RUN_OR_CHECKPOINT", help="Folder of a run, a trial or a checkpoint.")
    ],
    opponent: Annotated[
        str | None,
        typer.Option(
            metavar="random|noop|greedy|CHECKPOINT",
            help="Who plays the other team; sides are swapped every other game. Without one, the policies play all.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many games.")] = 100,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Take the most probable actions instead of sampling.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the games and the sampled actions.")] = 0,
    num_envs: Annotated[int, typer.Option(min=1, help="Games played at a time.")] = 8,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="env_config.KEY=VALUE",
            help="Play in another environment than the training's, e.g. env_config.map_size=25. Repeatable.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the numbers here.")
    ] = None,
    video: Annotated[Path | None, typer.Option(metavar="FILE.mp4", help="Also record one game here.")] = None,
) -> None:
    """Play a checkpoint's policies and count wins by survivors.

    Checkpoints are pickles: evaluate only those that you trust. Progress goes to stderr, the table to stdout.

    Example: `rllib-shared evaluate runs/battle --opponent random --episodes 100 --json result.json --video game.mp4`
    """
    from rich.console import Console
    from rich.progress import Progress

    from rllib_shared.evaluation.match import play
    from rllib_shared.evaluation.policies import load_policies
    from rllib_shared.evaluation.report import headline, match_table
    from rllib_shared.launching.errors import misuse_exits, refusing
    from rllib_shared.launching.overrides import parse_assignments

    errors = Console(stderr=True)
    with misuse_exits(), refusing(), Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        env_config = _env_config(parse_assignments("--set", overrides or ()))
        if json_file is not None:
            json_file.parent.mkdir(parents=True, exist_ok=True)
        policies = load_policies(checkpoint)
        task = bar.add_task("playing", total=episodes)
        result = play(
            policies,
            env_config,
            opponent=opponent,
            episodes=episodes,
            deterministic=deterministic,
            seed=seed,
            num_envs=num_envs,
            progress=lambda done: bar.update(task, completed=done),
            video=video,
        )
        if json_file is not None:
            json_file.write_text(json.dumps(result.to_dict(), indent=2))
    console = Console()
    console.print(headline(result), soft_wrap=True, highlight=False)
    console.print(match_table(result))


app.command(cls=ManyValuesCommand)(compare)


@app.command()
def export(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="RUN_OR_CHECKPOINT", help="Folder of a run, a trial or a checkpoint.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write into: new, or an earlier export.")],
    agent: Annotated[str | None, typer.Option(help="Export this agent's policy, e.g. red_17.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="Export a policy whose agents all act alike, e.g. red, or a sharing group.")
    ] = None,
) -> None:
    """Write one agent's policy as a plain RLModule checkpoint and as TorchScript, which needs torch only.

    Checkpoints are pickles: export only those that you trust.

    Example: `rllib-shared export runs/battle --agent red_17 --out red_17`
    """
    from rllib_shared.evaluation.export import DESCRIPTION, TORCHSCRIPT, export_policy, usage
    from rllib_shared.launching.errors import misuse_exits, refusing

    with misuse_exits(), refusing():
        folder = export_policy(checkpoint, agent=agent, policy=policy, out=out)
    typer.echo(f"{folder}: an RLModule checkpoint, {TORCHSCRIPT} (TorchScript) and {DESCRIPTION} (what it takes)")
    typer.echo(usage(folder))


@app.command()
def bench(
    env: Annotated[str, typer.Option(help="Environment.")] = "battle_v4",
    map_size: Annotated[int | None, typer.Option(help="Side of the map; 45 gives battle 81 against 81.")] = None,
    agents_per_team: Annotated[int | None, typer.Option(help="Exact team size, for battle_v4.")] = None,
    sharing: Annotated[
        str,
        typer.Option(
            help="Also measure another sharing against the row team: all, role, or agent, which is measured against "
            "stock RLlib with one policy per agent as well (some minutes with 162 agents)."
        ),
    ] = "team",
    critic_sharing: Annotated[
        str | None,
        typer.Option(help="Sharing of that row's critic.  [default: as its actor]", show_default=False),
    ] = None,
    hidden: Annotated[int, typer.Option(help="Width of the two hidden layers, of policy and value each.")] = 256,
    env_steps: Annotated[int, typer.Option(help="Env steps per iteration, of all copies together.")] = 100,
    num_envs: Annotated[int, typer.Option(help="Env copies, the same number for stock RLlib.")] = 4,
    iterations: Annotated[int, typer.Option(help="Measured iterations, after one to warm up.")] = 5,
    stock_central: Annotated[
        bool, typer.Option("--stock-central", help="Also stock RLlib with the state in every agent's observation.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure this row only: team, team_state, stock, stock_central, stock_agent, or the one named for the "
            "sharing. Repeatable."
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the numbers here.")
    ] = None,
) -> None:
    """Measure agent steps per second against stock RLlib, on the same work.

    Each row runs in a process of its own, one after the other. Leave the machine alone meanwhile: its load is watched.

    Example: `rllib-shared bench --env battle_v4 --map-size 45 --hidden 256 --json bench.json`

    One network per agent, and one critic per team: `rllib-shared bench --sharing agent --critic-sharing team`
    """
    from rich.console import Console

    from rllib_shared.benchmark.run import check, choose_rows, run
    from rllib_shared.benchmark.table import show
    from rllib_shared.benchmark.work import plan

    errors = Console(stderr=True)
    env_config = {"map_size": map_size, "agents_per_team": agents_per_team}
    try:
        rows = choose_rows(only, stock_central, sharing)
        work = plan(
            env,
            {key: value for key, value in env_config.items() if value is not None},
            sharing=sharing,
            critic_sharing=critic_sharing,
            hidden=hidden,
            env_steps=env_steps,
            num_envs=num_envs,
            iterations=iterations,
        )
        check(work, rows)
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


def _env_config(assignments: dict[str, Any]) -> dict[str, Any]:
    """The `env_config` that assignments make; raises ValueError for any other key."""
    prefix = "env_config."
    for key in assignments:
        if not key.startswith(prefix):
            raise ValueError(f"--set {key}: evaluate changes the environment only, by env_config.KEY=VALUE")
    return {key.removeprefix(prefix): value for key, value in assignments.items()}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: instead of `sys.argv[1:]`.
    """
    app(args=arguments)
