"""A video file from an environment's frames, small maps enlarged."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import imageio.v2 as imageio
import numpy as np

from rllib_shared.envs.team_env import TeamEnv

FRAMES_PER_SECOND = 10
_LEGIBLE = 640  # pixels that the longer side of a frame should have at least


class VideoFile:
    """Writes frames as they come; a context manager.

    Args:
        path: an `.mp4` file; its folder is made.

    Raises:
        ValueError: another suffix.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if self.path.suffix.lower() != ".mp4":
            raise ValueError(f"a video file must end in .mp4, got {str(path)!r}")
        self._writer: Any = None

    def add(self, env: TeamEnv) -> None:
        """Draw the environment's present frame and write it.

        Raises:
            ValueError: the environment draws nothing.
        """
        frame = env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise ValueError(
                f"{env.name} draws no frames, so there is no video of it; it must be made with render_mode='rgb_array'"
            )
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = imageio.get_writer(self.path, fps=FRAMES_PER_SECOND, macro_block_size=1)
        self._writer.append_data(legible(frame))

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()


def legible(frame: np.ndarray) -> np.ndarray:
    """The frame, uint8 `[height, width, 3]`, pixels repeated until they are easy to see; even sides, as codecs need."""
    factor = max(1, -(-_LEGIBLE // max(frame.shape[:2])))
    large = frame[..., :3].repeat(factor, axis=0).repeat(factor, axis=1)
    odd_rows, odd_columns = large.shape[0] % 2, large.shape[1] % 2
    return np.pad(large, ((0, odd_rows), (0, odd_columns), (0, 0)), mode="edge")
