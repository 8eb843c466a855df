"""What this process takes of the machine, and what others do: numbers measured on a busy machine are not good."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import psutil

from rllib_shared.benchmark.work import available_cores

BUSY = 0.1  # share of all cores; two OpenMP threads wait for each other, so even this costs more than its share


class LoadWatch:
    """Watches, from now on, how much of the machine's cores others use."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = time.perf_counter()
        self._busy = _busy_seconds()
        self._own = self._own_seconds()

    def others(self) -> float:
        """Share of all cores, 0 to 1, used by other processes since the start."""
        seconds = (time.perf_counter() - self._start) * available_cores()
        used = _busy_seconds() - self._busy - (self._own_seconds() - self._own)
        return min(1.0, max(0.0, used / seconds))

    def _own_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def others_now(seconds: float = 1.0) -> float:
    """Share of all cores, 0 to 1, that others use in the next `seconds`."""
    watch = LoadWatch()
    time.sleep(seconds)
    return watch.others()


def peak_memory_mib() -> float:
    """Peak resident memory of this process, MiB."""
    # Linux hands ru_maxrss on from the process that started this one; VmHWM starts anew.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def _busy_seconds() -> float:
    """CPU seconds of all processes of the machine, with what the hypervisor took away."""
    times = psutil.cpu_times()
    # The kernel counts guests' time as user time too.
    spare = ("idle", "iowait", "guest", "guest_nice")
    return sum(value for name, value in times._asdict().items() if name not in spare)
