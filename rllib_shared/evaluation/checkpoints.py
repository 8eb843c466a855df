"""From what a user types to a checkpoint folder: a checkpoint, a Tune trial, or a whole run."""

from __future__ import annotations

from pathlib import Path

_METADATA = "rllib_checkpoint.json"


def checkpoint_path(path: str | Path) -> Path:
    """The absolute path of the checkpoint at or below `path`; the newest one of a trial or run.

    Args:
        path: a checkpoint folder, a Tune trial folder or a Tune run folder; relative paths and `~` are fine.

    Raises:
        FileNotFoundError: nothing there, or nothing that RLlib saved.
        ValueError: a run of several trials; the message lists them.
    """
    root = Path(path).expanduser().resolve()
    if not root.exists():
        raise FileNotFoundError(f"no such checkpoint or run: {root}")
    if (root / _METADATA).is_file():
        return root
    found = checkpoints_of(root)
    if not found:
        raise FileNotFoundError(
            f"{root} is no RLlib checkpoint (it lacks {_METADATA}) and no run that has one; "
            "give the folder that `rllib-shared train` printed"
        )
    trials = sorted({checkpoint.parent for checkpoint in found})
    if len(trials) > 1:
        names = "\n  ".join(str(trial) for trial in trials)
        raise ValueError(f"{root} holds {len(trials)} trials; choose one:\n  {names}")
    return found[-1]


def checkpoints_of(root: Path) -> list[Path]:
    """All checkpoint folders of a trial or run, oldest first."""
    candidates = [*root.glob(f"checkpoint_*/{_METADATA}"), *root.glob(f"*/checkpoint_*/{_METADATA}")]
    return sorted((metadata.parent for metadata in candidates), key=lambda folder: (folder.parent, folder.name))
