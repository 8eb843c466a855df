"""What the progress lines say."""

from __future__ import annotations

from typing import Any

import pytest

from rllib_shared.launching.progress import TrialProgress, line


def result(iteration: int, win_rate: float = 0.25) -> dict[str, Any]:
    """An iteration of 2 s in which 400 agent steps and 40 env steps were made; 10 000 before the first."""
    return {
        "agent_steps": 10_000 + 400 * iteration,
        "env_steps": 1000 + 40 * iteration,
        "training_iteration": 25 + iteration,
        "time_total_s": 50.0 + 2.0 * iteration,
        "time_this_iter_s": 2.0,
        "env_runners": {
            "num_agent_steps_sampled": {"red": 150, "blue": 250},
            "num_env_steps_sampled": 40,
            "teams": {"red": {"return_per_agent": 1.5, "win_rate": win_rate, "survivors": 3.0, "episode_length": 20.0}},
        },
    }


def progress(iterations: int, **changes: float) -> TrialProgress:
    trial = TrialProgress("trial_0")
    for iteration in range(1, iterations + 1):
        trial.add(result(iteration, **changes))
    return trial


def test_a_resumed_trial_counts_its_speed_from_what_it_does_now() -> None:
    assert progress(1).rate("agent_steps") == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"agent_steps": 20_800}, 50.0),
        ({"env_steps": 1480}, 20.0),
        ({"iterations": 37}, 20.0),
        ({"hours": 84 / 3600}, 30.0),
        ({"agent_steps": 20_800, "iterations": 37}, 20.0),
        ({"agent_steps": 1}, 0.0),
    ],
)
def test_time_left_is_that_of_the_limit_reached_first(limits: dict[str, float], seconds: float) -> None:
    assert progress(2).seconds_left(limits) == pytest.approx(seconds)


def test_a_line_says_how_far_how_fast_how_long_and_how_the_teams_do() -> None:
    text = line(progress(2), {"agent_steps": 21_600.0})
    assert text == (
        "trial_0: agent steps 10,800 of 21,600 (50 %), 200 agent steps/s, 0:00:54 left"
        " | red: return per agent 1.50, win rate 0.25, survivors 3.0"
    )


def test_a_line_has_no_time_left_where_nothing_counts_up_and_dashes_before_the_first_episode() -> None:
    key = "env_runners/teams/red/win_rate"
    text = line(progress(1, win_rate=float("nan")), {key: 0.9})
    assert text == (
        f"trial_0: agent steps 10,400, 200 agent steps/s, {key} - of 0.90"
        " | red: return per agent 1.50, win rate -, survivors 3.0"
    )
