"""`TeamPPOConfig`: RLlib's `PPOConfig` with `.teams(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.typing import EnvType
from ray.util import log_once

from rllib_shared.algorithms.footprint import Footprint, check_memory, footprints
from rllib_shared.envs.critic_observation import CriticObservationChoice
from rllib_shared.envs.registry import make_team_env
from rllib_shared.envs.team_env import TeamEnv
from rllib_shared.modules.centralized_critic import CentralizedCriticModule
from rllib_shared.modules.model_config import ModelConfig
from rllib_shared.sampling.runner import TeamEnvRunner
from rllib_shared.sharing import SharingChoice
from rllib_shared.teams import Teams, TeamsChoice


class TeamPPOConfig(PPOConfig):
    """PPO for teams of many agents.

    All sizes are in env steps, RLlib's own default unit: with 162 agents, `train_batch_size_per_learner=400` is up to
    64 800 agent steps, and `minibatch_size=25` up to 4 050.

    The defaults are those of MAPPO (Yu et al., arXiv 2103.01955) where it and PPOConfig differ: few epochs of large
    minibatches.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        from rllib_shared.algorithms.ppo import TeamPPO

        super().__init__(algo_class=algo_class or TeamPPO)
        self.team_choice: TeamsChoice = None
        self.sharing: SharingChoice = "team"
        self.critic_sharing: SharingChoice | None = None
        self.agent_id: bool | str = False
        self.critic_observation: CriticObservationChoice = "state"
        self.team_layout: Teams | None = None

        self.env_runner_cls = TeamEnvRunner
        self.num_env_runners = 0
        self.disable_env_checking = True
        self.add_default_connectors_to_learner_pipeline = False
        self.min_time_s_per_iteration = 0
        self.metrics_num_episodes_for_smoothing = 20
        self.train_batch_size_per_learner = 400
        self.minibatch_size = 25
        self.num_epochs = 4
        self.lr = 3e-4
        self.gamma = 0.99
        self.lambda_ = 0.95
        self.clip_param = 0.2
        self.entropy_coeff = 0.01
        self.vf_loss_coeff = 0.5
        self.grad_clip = 0.5
        self.grad_clip_by = "global_norm"
        self.use_kl_loss = False
        # TeamPPOLearner checks gradients once; True keeps RLlib from checking each of them twice more.
        self.torch_skip_nan_gradients = True

    def teams(
        self,
        teams: TeamsChoice = NotProvided,
        *,
        sharing: SharingChoice = NotProvided,
        critic_sharing: SharingChoice | None = NotProvided,
        critic_observation: CriticObservationChoice = NotProvided,
        agent_id: bool | str = NotProvided,
    ) -> TeamPPOConfig:
        """Say who shares a policy and what the critics see.

        Args:
            teams: None for the prefix of agent names (`red_0` is in team `red`), patterns
                `{"red": ["redmelee_*", "redranged_*"]}`, or a function `agent -> team`.
            sharing: who acts with the same weights. `"team"`: one policy per team; `"all"`: one for all teams;
                `"role"`: one per kind of agent in a team (kinds differ in their spaces); `"agent"`: one per agent;
                `{"scouts": ["red_0", "red_1*"], "rest": ["red_[2-9]*", "blue_*"]}`: one per group. More sharing
                learns faster from the same steps and needs less memory; less allows agents to differ.
            critic_sharing: the same choices for the critic; None (the default) takes the actor's.
            critic_observation: `"state"` (the environment's state), `"joint"` (teammates' observations side by side),
                `"own"` (what the actor sees), or a function `(env, team) -> array`, optionally with its space as
                `(function, space)`. The critic is used in training only.
            agent_id: append which agent it is to what actor and critic see, so that a shared policy can give agents
                different parts (Terry et al., arXiv 2005.13625): True as one-hot `[N]`, `"binary"` as the bits of
                its slot's number, `[ceil(log2 N)]`.

        Returns:
            This config.
        """
        if teams is not NotProvided:
            self.team_choice = teams
        if sharing is not NotProvided:
            self.sharing = sharing
        if critic_sharing is not NotProvided:
            self.critic_sharing = critic_sharing
        if agent_id is not NotProvided:
            self.agent_id = agent_id
        if critic_observation is not NotProvided:
            self.critic_observation = critic_observation
        return self

    def environment(self, env: Any = NotProvided, **kwargs: Any) -> TeamPPOConfig:
        """As RLlib's; `env` may also be any specifier of `envs.registry.make_env`, a factory included."""
        if env is not NotProvided and callable(env) and not isinstance(env, type):
            from ray.tune.registry import register_env

            name = f"{getattr(env, '__module__', '')}:{getattr(env, '__qualname__', repr(env))}"
            factory = env
            # RLlib takes names and classes only; Tune's registry carries the factory to other processes.
            register_env(name.replace(":", "."), lambda env_config: factory(**env_config))
            env = name.replace(":", ".")
        return super().environment(env, **kwargs)

    def make_team_env(self, env_config: Mapping[str, Any] | None = None) -> TeamEnv:
        """One copy of the environment as arrays.

        Args:
            env_config: instead of the config's own.
        """
        if not self.env:
            raise ValueError('no environment: call config.environment("battle_v4", env_config={...})')
        return make_team_env(
            self.env,
            self.env_config if env_config is None else env_config,
            teams=self.team_choice,
            sharing=self.sharing,
            critic_sharing=self.critic_sharing,
            critic_observation=self.critic_observation,
        )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """`CentralizedCriticModule`."""
        return RLModuleSpec(module_class=CentralizedCriticModule)

    def get_default_learner_class(self) -> type:
        """`TeamPPOLearner`."""
        from rllib_shared.algorithms.learner import TeamPPOLearner

        return TeamPPOLearner

    def get_multi_rl_module_spec(
        self,
        *,
        env: EnvType | None = None,
        spaces: dict | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> MultiRLModuleSpec:
        """As RLlib's, with the slots in each model_config.

        Stock ignores `inference_only` when specs are given per module, so that runners would hold the critics.
        Watched by tests/modules/test_centralized_critic.py.
        """
        spec = super().get_multi_rl_module_spec(env=env, spaces=spaces, inference_only=inference_only, **kwargs)
        for module_id, module_spec in spec.rl_module_specs.items():
            module_spec.inference_only = inference_only
            if self.team_layout is not None and module_id in self.team_layout.modules:
                slots = self.team_layout.modules[module_id]
                module_spec.model_config = {
                    **module_spec._get_model_config(),
                    "agent_id": self.agent_id,
                    "num_slots": slots.num_slots,
                    "team_index": slots.team_index.tolist(),
                    "weight_index": slots.weight_index.tolist(),
                    "critic_weight_index": slots.critic_weight_index.tolist(),
                }
        return spec

    def footprints(self) -> list[Footprint]:
        """Parameters and bytes of each module, before any of them is made."""
        config = self.copy(copy_frozen=False)
        env = config.make_team_env()
        try:
            config._lay_out(env)
            return footprints(config, env)
        finally:
            env.close()

    def validate(self) -> None:
        """Refuse what cannot work, before any Ray actor starts.

        Raises:
            ValueError: with one sentence on what was given and what to do.
        """
        if not self._is_frozen:
            ModelConfig.from_dict({**self.model_config, "agent_id": self.agent_id})
            self._try_env()
        self._refuse()
        # RLlib would warn that its new API stack is the default, which is the only one here.
        log_once(f"{self.algo_class.__name__}_on_new_api_stack")
        super().validate()

    def _try_env(self) -> None:
        """Make the environment and the modules once on the driver, where an error is seen with its traceback."""
        env = self.make_team_env()
        try:
            self._lay_out(env)
            self._check_bounds(env)
            if not self.in_evaluation:
                check_memory(self, env, footprints(self, env))
        finally:
            env.close()

    def _lay_out(self, env: TeamEnv) -> None:
        """Take over who is in which module."""
        self.team_layout = env.teams
        self.multi_agent(policies=set(env.teams.module_ids), policy_mapping_fn=env.teams.policy_mapping_fn)

    def _refuse(self) -> None:
        """Settings of RLlib that the array path does not read must not be silently ignored."""
        reasons = {
            "env_to_module_connector": (
                self._env_to_module_connector is not None,
                "is not used by TeamEnvRunner; put it into the environment or the module",
            ),
            "module_to_env_connector": (
                self._module_to_env_connector is not None,
                "is not used by TeamEnvRunner; put it into the environment or the module",
            ),
            "add_default_connectors_to_learner_pipeline": (
                self.add_default_connectors_to_learner_pipeline,
                "must be False: RLlib's learner connectors need its own episodes",
            ),
            "batch_mode": (
                self.batch_mode != "truncate_episodes" and not self.in_evaluation,
                "must be 'truncate_episodes'; fragments carry what is needed to bootstrap",
            ),
            "count_steps_by": (
                self.count_steps_by != "env_steps",
                "must be 'env_steps': all sizes are in env steps (RLlib's agent_steps fail once an agent has died)",
            ),
            "use_gae": (not self.use_gae, "must be True"),
            "num_epochs": (self.num_epochs < 1, "must be at least 1"),
            "num_env_runners": (self.num_env_runners < 0, "must be at least 0"),
            "num_envs_per_env_runner": (self.num_envs_per_env_runner < 1, "must be at least 1"),
        }
        for name, (refused, why) in reasons.items():
            if refused:
                raise ValueError(f"{name}={getattr(self, name, getattr(self, f'_{name}', None))!r} {why}")

    def _check_bounds(self, env: TeamEnv) -> None:
        for module_id, slots in env.teams.modules.items():
            bounded = getattr(slots.action_space, "is_bounded", lambda: False)()
            if bounded and not (self.normalize_actions or self.clip_actions):
                raise ValueError(
                    f"module {module_id!r} acts in the bounded {slots.action_space}; "
                    "set normalize_actions=True or clip_actions=True, or actions will leave it"
                )

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        # PPOConfig adds `vf_share_layers` for its default module, which actor and critic here do not have.
        return AlgorithmConfig._model_config_auto_includes.fget(self)
