"""RLlib for teams of many agents that share a policy, with critics that see more than the actors.

The names below are the public surface. Each is imported when it is first used, so that `import rllib_shared` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_shared.algorithms.config import TeamPPOConfig
    from rllib_shared.algorithms.ppo import TeamPPO
    from rllib_shared.comparison.study import compare
    from rllib_shared.envs.registry import make_env, make_team_env
    from rllib_shared.evaluation.export import export_policy
    from rllib_shared.evaluation.match import play
    from rllib_shared.evaluation.policies import load_policies
    from rllib_shared.modules.centralized_critic import CentralizedCriticModule
    from rllib_shared.teams import Teams

__all__ = [
    "CentralizedCriticModule",
    "TeamPPO",
    "TeamPPOConfig",
    "Teams",
    "compare",
    "export_policy",
    "load_policies",
    "make_env",
    "make_team_env",
    "play",
]

_HOME = {
    "CentralizedCriticModule": "rllib_shared.modules.centralized_critic",
    "TeamPPO": "rllib_shared.algorithms.ppo",
    "TeamPPOConfig": "rllib_shared.algorithms.config",
    "Teams": "rllib_shared.teams",
    "compare": "rllib_shared.comparison.study",
    "export_policy": "rllib_shared.evaluation.export",
    "load_policies": "rllib_shared.evaluation.policies",
    "make_env": "rllib_shared.envs.registry",
    "make_team_env": "rllib_shared.envs.registry",
    "play": "rllib_shared.evaluation.match",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
