"""Numbers and arms as words: formats used by tables, figures and sentences alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rllib_shared.comparison.schema import Arm, Study
from rllib_shared.comparison.statistics import Estimate

NOTHING = "-"

_ONE_PER = {"all": "for all teams", "team": "per team", "role": "per team and role", "agent": "per agent"}
_SEEN = {"state": "the state", "own": "its agent's observation", "joint": "all teammates' observations"}


def decimals(values: Iterable[float]) -> int:
    """Decimals that show about three digits of the largest value."""
    largest = max((abs(value) for value in values), default=0.0)
    return 2 if largest == 0 else max(0, min(4, 2 - math.floor(math.log10(largest))))


def score(estimate: Estimate, digits: int) -> str:
    """`3.12 [2.70, 3.41]`, or `3.12` without an interval."""
    value = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def percent(estimate: Estimate) -> str:
    """`85 % [70 %, 95 %]`."""
    value = f"{100 * estimate.value:.0f} %"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{100 * estimate.low:.0f} %, {100 * estimate.high:.0f} %]"


def number(value: float, digits: int = 0) -> str:
    """`1 234 567`."""
    return f"{value:,.{digits}f}".replace(",", " ")


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def limit(study: Study) -> str:
    """What every trial was trained for: `300 000 agent steps`."""
    limits = [
        f"{f'{value:g}' if value % 1 else number(value)} {key.replace('_', ' ')}" for key, value in study.stop.items()
    ]
    return " or ".join(limits) or "training"


def sharing(value: str | Mapping[str, Any]) -> str:
    """A sharing mode for a table cell: its name, or the groups."""
    if isinstance(value, str):
        return value
    return "groups " + ", ".join(f"{name} ({' '.join(patterns)})" for name, patterns in value.items())


def agent_id(value: bool | str) -> str:
    """For a table cell."""
    return value if isinstance(value, str) else "yes" if value else "no"


def described(arm: Arm, arms: Iterable[Arm]) -> str:
    """An arm in words, with what differs between the arms only: `one policy per agent, one critic per team`."""
    arms = list(arms)
    together = all(one.critic_sharing == one.sharing for one in arms)
    parts = []
    if len({sharing(one.sharing) for one in arms}) > 1:
        parts.append(f"one policy{' and critic' if together else ''} {_per(arm.sharing)}")
    if not together and len({sharing(one.critic_sharing) for one in arms}) > 1:
        parts.append(f"one critic {_per(arm.critic_sharing)}")
    if len({one.critic_observation for one in arms}) > 1:
        parts.append(f"a critic that sees {_SEEN.get(arm.critic_observation, arm.critic_observation)}")
    if len({one.agent_id for one in arms}) > 1:
        parts.append(
            {"yes": "with agent id", "no": "without agent id"}.get(agent_id(arm.agent_id), "with binary agent id")
        )
    return ", ".join(parts) or arm.label


def _per(value: str | Mapping[str, Any]) -> str:
    return _ONE_PER.get(value, value) if isinstance(value, str) else f"per group ({', '.join(value)})"
