"""The options of `rllib-shared compare`; `cli.py` adds the command, `study.py` does the work."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from rllib_shared.launching.many_values import ARGUMENTS


class AgentId(str, Enum):
    """Whether the networks are told which agent acts."""

    off = "off"
    on = "on"
    binary = "binary"

    @property
    def value_in_config(self) -> bool | str:
        """As `TeamPPOConfig.teams` takes it."""
        return {"off": False, "on": True}.get(self.value, self.value)


def compare(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file: Python, with a function config().")],
    sharing: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WAY...",
            help="Who acts with the same weights: all, team, role, agent, or groups as JSON: "
            '\'{"scouts": ["red_0"], "rest": ["red_[1-9]", "blue_?"]}\'. Several ways, separated by spaces, are '
            "compared; the first is the reference.",
        ),
    ] = None,
    critic_sharing: Annotated[
        list[str] | None,
        typer.Option(metavar="WAY...", help="The same for the critics.  [default: as the actors]", show_default=False),
    ] = None,
    critic_observation: Annotated[
        list[str] | None, typer.Option(metavar="WHAT...", help="What the critics see: state, joint, own.")
    ] = None,
    agent_id: Annotated[
        list[AgentId] | None,
        typer.Option(metavar="off|on|binary...", help="Whether the networks are told which agent acts."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Trials of each arm, with seeds from 0.  [default: 5]", show_default=False)
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="How long every trial is trained: agent_steps or env_steps. Replaces the file's STOP.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the study.  [default: in runs]", show_default=False),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the study in --out: finished trials are kept, failed ones retried."),
    ] = False,
    opponent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="random|noop|greedy|CHECKPOINT...",
            help="Who is played at evaluations, the hardest last.  [default: random and greedy, where they can play]",
            show_default=False,
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Games per evaluation and opponent.  [default: 20]", show_default=False),
    ] = None,
    points: Annotated[
        int | None,
        typer.Option(help="Evaluations after the one before training.  [default: 10]", show_default=False),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a config value of all arms, as for `train`. Repeatable."
        ),
    ] = None,
    num_env_runners: Annotated[
        int | None, typer.Option(help="Processes that sample, per trial; 0 samples and learns in one.")
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(help="Trials at a time.  [default: as the cores allow]", show_default=False)
    ] = None,
) -> None:
    """Compare ways to share on equal terms, with several seeds, and write a report.

    Every combination of the given ways is trained for the same number of steps and plays the same games at the same
    points of training. Progress goes to stderr; the folder with `summary.md`, `report.html`, `results.csv` and
    `figures` is the last line on stdout. Ctrl-C saves and ends; `--resume` goes on.

    Example: `rllib-shared compare experiments/battle.py --sharing team agent --critic-sharing team
    --critic-observation state own --seeds 5 --stop agent_steps=1e6 --out DIR`
    """
    import sys
    from contextlib import redirect_stdout

    from rllib_shared.comparison.study import compare as compare_arms
    from rllib_shared.launching.errors import misuse_exits, refusing
    from rllib_shared.launching.overrides import given_overrides, parse_assignments

    try:
        # Only the study's folder belongs on stdout, whatever an experiment or an actor prints.
        with misuse_exits(), redirect_stdout(sys.stderr):
            with refusing():
                changes = given_overrides(overrides or (), num_env_runners)
                limits = parse_assignments("--stop", stop or ())
                ways, critic_ways = _ways("--sharing", sharing), _ways("--critic-sharing", critic_sharing)
            result = compare_arms(
                file,
                out,
                sharing=ways,
                critic_sharing=critic_ways,
                critic_observation=critic_observation,
                agent_id=[choice.value_in_config for choice in agent_id] if agent_id else None,
                seeds=seeds,
                stop=limits or None,
                opponents=opponent,
                episodes=episodes,
                points=points,
                overrides=changes or None,
                concurrent=concurrent,
                resume=resume,
                command=shlex.join(["rllib-shared", "compare", *ctx.meta[ARGUMENTS]]),
            )
    except KeyboardInterrupt:
        typer.echo("Stopped at once; --resume goes on with what was saved before.", err=True)
        raise typer.Exit(130) from None
    typer.echo(str(result.directory))
    raise typer.Exit(result.exit_code)


def _ways(option: str, given: Sequence[str] | None) -> list[Any] | None:
    """Words, and groups from JSON; None if nothing is given."""
    return [_way(option, text) for text in given] if given else None


def _way(option: str, text: str) -> Any:
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{option} {text}: groups must be JSON, but {error}") from None
