"""The README's Python runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["who shares", "in Python", "your own environment"])
def test_the_readme_s_python_runs_as_printed(block: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    # A shorter run than the reader's, and a Ray as small as the tests'.
    small = 'import ray\nray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")\n'
    script.write_text(small + block.replace("100_000", "5_000"))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
