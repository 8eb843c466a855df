"""The arms of a study: every combination of the given ways to share, to see and to tell agents apart.

An arm is a config with other values in `AXES`; its trials are known by these values.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.comparison.schema import Arm
from rllib_shared.messages import preview

AXES = ("sharing", "critic_sharing", "critic_observation", "agent_id")


@dataclass(frozen=True)
class Arms:
    """The grid of a study.

    Attributes:
        values: of each axis, as a config takes them, without duplicates.
        arms: all combinations, in the order in which the values were given.
    """

    values: Mapping[str, tuple[Any, ...]]
    arms: tuple[Arm, ...]

    def of(self, config: Mapping[str, Any] | TeamPPOConfig) -> Arm:
        """The arm to which a config belongs."""
        axes = config if isinstance(config, Mapping) else vars(config)
        unlabelled = _arm({axis: axes[axis] for axis in AXES})
        return next(arm for arm in self.arms if replace(arm, label="") == unlabelled)

    def configs(self, config: TeamPPOConfig) -> dict[str, TeamPPOConfig]:
        """A copy of the config for each arm, by label."""
        made = {}
        for choices in _combinations(self.values):
            copy = config.copy(copy_frozen=False).teams(**choices)
            made[self.of(copy).label] = copy
        return made


def make_arms(config: TeamPPOConfig, given: Mapping[str, Sequence[Any] | None]) -> Arms:
    """The grid of the given values.

    Args:
        config: the experiment's; its own value is taken for an axis that is not given.
        given: values of each axis in `AXES`.
    """
    values = {axis: _without_duplicates(given.get(axis) or [getattr(config, axis)]) for axis in AXES}
    if not given.get("critic_sharing") and config.critic_sharing == config.sharing:
        # What the experiment spells out would otherwise hold while the actors' sharing changes.
        values["critic_sharing"] = (None,)
    return Arms(values, _labelled([_arm(choices) for choices in _combinations(values)]))


def same_arms(config: TeamPPOConfig, arms: Sequence[Arm]) -> Arms:
    """The grid that gave these arms, as they were written in `study.json`."""
    given: dict[str, list[Any]] = {axis: [getattr(arm, axis) for arm in arms] for axis in AXES}
    own = config.critic_observation
    if not isinstance(own, str):
        given["critic_observation"] = [own if seen == _word(own) else seen for seen in given["critic_observation"]]
    if all(arm.critic_sharing == arm.sharing for arm in arms):
        given["critic_sharing"] = [None]
    return make_arms(config, given)


def check_different(configs: Mapping[str, TeamPPOConfig]) -> None:
    """Refuse arms that are the same in this environment, as `role` and `team` where a team has one role.

    Args:
        configs: validated, by label.
    """
    seen: dict[Any, str] = {}
    for label, config in configs.items():
        assert config.team_layout is not None
        slots = config.team_layout.modules.values()
        axes = _arm({axis: getattr(config, axis) for axis in AXES})
        signature = (
            _partition((s.agents, s.weight_index) for s in slots),
            _partition((s.agents, s.critic_weight_index) for s in slots),
            axes.critic_observation,
            axes.agent_id,
        )
        if signature in seen:
            raise ValueError(
                f"the arms {preview([seen[signature], label])} are the same in {config.env}: the same agents share; "
                "leave one of them out"
            )
        seen[signature] = label


def _partition(members: Any) -> frozenset[frozenset[str]]:
    """Who uses the same weights."""
    groups: dict[tuple[int, int], set[str]] = {}
    for module, (agents, index) in enumerate(members):
        for agent, weights in zip(agents, index.tolist(), strict=True):
            groups.setdefault((module, weights), set()).add(agent)
    return frozenset(map(frozenset, groups.values()))


def _combinations(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(AXES, choices, strict=True)) for choices in itertools.product(*(values[axis] for axis in AXES))]


def _arm(choices: Mapping[str, Any]) -> Arm:
    """What `study.json` says of a combination."""
    sharing, critics = choices["sharing"], choices["critic_sharing"]
    return Arm(
        label="",
        sharing=_plain(sharing),
        critic_sharing=_plain(sharing if critics is None else critics),
        critic_observation=_word(choices["critic_observation"]),
        agent_id=choices["agent_id"],
    )


def _plain(sharing: Any) -> Any:
    """As JSON gives it back."""
    return sharing if isinstance(sharing, str) else json.loads(json.dumps(sharing))


def _word(critic_observation: Any) -> str:
    """A choice's name; a function's own name."""
    if isinstance(critic_observation, str):
        return critic_observation
    function = critic_observation[0] if isinstance(critic_observation, tuple) else critic_observation
    return getattr(function, "__name__", type(function).__name__)


def _labelled(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Arms with the shortest names that tell them apart, which are folder names as well."""
    observations = {arm.critic_observation for arm in arms}
    ids = {arm.agent_id for arm in arms}
    named: list[Arm] = []
    for arm in arms:
        parts = [_sharing_word(arm.sharing)]
        if arm.critic_sharing != arm.sharing:
            parts.append(f"critic {_sharing_word(arm.critic_sharing)}")
        if len(observations) > 1:
            parts.append(arm.critic_observation)
        if len(ids) > 1:
            parts.append(f"{arm.agent_id} id" if isinstance(arm.agent_id, str) else "id" if arm.agent_id else "no id")
        label = " / ".join(parts)
        taken = [slug(other.label) for other in named]
        number = next(n for n in itertools.count(1) if slug(_numbered(label, n)) not in taken)
        named.append(replace(arm, label=_numbered(label, number)))
    return tuple(named)


def slug(label: str) -> str:
    """A label as a folder name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_")


def _numbered(label: str, number: int) -> str:
    return label if number == 1 else f"{label} {number}"


def _sharing_word(sharing: Any) -> str:
    return f"groups {'+'.join(sharing)}" if isinstance(sharing, Mapping) else str(sharing)


def _without_duplicates(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for place, value in enumerate(values) if value not in values[:place])
