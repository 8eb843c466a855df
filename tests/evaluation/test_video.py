"""Recorded games."""

from __future__ import annotations

import itertools
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from rllib_shared import load_policies, play
from rllib_shared.envs.registry import make_team_env
from rllib_shared.evaluation.video import legible


def test_a_video_shows_one_game_with_a_fresh_frame_per_step(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "game.mp4"
    play(load_policies(checkpoint), {"max_cycles": 6}, opponent="random", episodes=1, video=file)
    frames = imageio.imread(file)
    assert frames.shape == (7, 720, 640, 3)
    assert all(np.abs(after.astype(int) - before).max() > 100 for before, after in itertools.pairwise(frames))


def test_environments_that_draw_nothing_are_refused(tmp_path: Path) -> None:
    def blind() -> object:
        return make_team_env("battle_v4", {"map_size": 16}, critic_observation="own")

    with pytest.raises(ValueError, match=r"battle_v4 draws no frames.*render_mode='rgb_array'"):
        play("noop", blind, episodes=1, video=tmp_path / "game.mp4")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_other_files_than_mp4_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.mp4"):
        play(load_policies(checkpoint), episodes=1, video=tmp_path / "game.gif")


@pytest.mark.parametrize(
    ("shape", "expected"), [((144, 128), (720, 640)), ((7, 5), (644, 460)), ((701, 801), (702, 802))]
)
def test_frames_are_enlarged_to_even_sides(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert legible(np.zeros((*shape, 3), np.uint8)).shape == (*expected, 3)
