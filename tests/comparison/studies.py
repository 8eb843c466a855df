"""Studies as files: scores are given by the test, all the rest is plausible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rllib_shared.comparison.schema import Arm, Failure, Row, Study, write_failures, write_results, write_study

POINTS = 4
STEPS = 300_000


def write(
    directory: Path,
    scores: Mapping[str, Sequence[float]],
    *,
    opponents: Sequence[str] = ("random", "greedy"),
    stopped_at: Mapping[tuple[str, int], int] | None = None,
    failures: Sequence[Failure] = (),
    speeds: Mapping[str, float] | None = None,
) -> Study:
    """Write a study whose runs rise in straight lines from 0 to their final scores.

    Args:
        directory: where.
        scores: final main score of each arm's seeds; the arms are called as their sharing.
        opponents: the score against all but the last is one higher.
        stopped_at: (arm, seed) to the last evaluation of trials that did not get to the end.
        failures: as they are.
        speeds: agent steps per second of arms, otherwise 1000.
    """
    study = Study(
        experiment="experiments/battle.py",
        env="battle_v4",
        env_config={"map_size": 16},
        stop={"agent_steps": STEPS},
        arms=[Arm(label, label, label, "state") for label in scores],
        seeds=list(range(max(len(finals) for finals in scores.values()))),
        opponents=list(opponents),
        episodes=20,
        points=POINTS,
        config={"lr": 5e-4},
        versions={"ray": "2.60.0"},
        machine="2 cores, no GPU",
        command="rllib-shared compare experiments/battle.py --sharing team agent",
    )
    rows = [
        row(label, seed, point, opponent, final, (speeds or {}).get(label, 1000.0), opponent in opponents[:-1])
        for label, finals in scores.items()
        for seed, final in enumerate(finals)
        for point in range((stopped_at or {}).get((label, seed), POINTS) + 1)
        for opponent in opponents or [""]
    ]
    write_study(directory, study)
    write_results(directory, rows)
    write_failures(directory, failures)
    return study


def row(
    label: str, seed: int, point: int, opponent: str, final: float, speed: float = 1000.0, is_easy: bool = False
) -> Row:
    """One evaluation of a run that rises in a straight line."""
    done = point / POINTS
    return Row(
        arm=label,
        seed=seed,
        trial=f"{label}_{seed}",
        point=point,
        env_steps=int(STEPS * done) // 20,
        agent_steps=int(STEPS * done),
        train_seconds=STEPS * done / speed,
        opponent=opponent,
        episodes=20,
        return_per_agent=final * done + is_easy,
        win_rate=0.5 if opponent else None,
        survivors=3.0 if opponent else None,
        episode_length=80.0,
        parameters=10_000,
        memory_mib=900.0,
        agent_steps_per_s=speed if point else 0.0,
    )
