"""The module: observation shapes, layouts, masks, and where the critic is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.envs.team_env import ACTION_MASK, CRITIC_OBSERVATION, OBSERVATION
from rllib_shared.modules.centralized_critic import ALIVE, CRITIC_ROW, SLOT, CentralizedCriticModule


def box(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(-1, 1, shape, np.float32)


def make_module(
    observation: gym.Space, critic: gym.Space | None = None, action: gym.Space | None = None, **options: Any
) -> CentralizedCriticModule:
    torch.manual_seed(0)
    parts = {OBSERVATION: observation} | ({CRITIC_OBSERVATION: critic} if critic is not None else {})
    return CentralizedCriticModule(
        observation_space=gym.spaces.Dict(parts),
        action_space=action or gym.spaces.Discrete(5),
        inference_only=options.pop("inference_only", False),
        model_config={"hidden": [16], **options},
    )


@pytest.mark.parametrize("shape", [(13, 13, 5), (10, 10, 29), (3, 3, 5), (27, 5), (2,)])
@pytest.mark.parametrize("critic_shape", [(45, 45, 5), (54,), (1,)])
def test_forward_and_backward_work_for_all_kinds_of_observations(shape: tuple, critic_shape: tuple) -> None:
    """T14: small grids and plain vectors, for actor and critic."""
    module = make_module(box(*shape), box(*critic_shape))
    batch = {Columns.OBS: {OBSERVATION: torch.rand(3, *shape), CRITIC_OBSERVATION: torch.rand(3, *critic_shape)}}
    logits = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    values = module.compute_values(batch)
    assert logits.shape == (3, 5) and values.shape == (3,)
    (logits.sum() + values.sum()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())


def test_the_team_layout_equals_the_row_layout() -> None:
    module = make_module(box(4), box(6), critic_agent_id=True, num_slots=3)
    observation, critic = torch.rand(2, 3, 4), torch.rand(2, 6)
    alive = torch.tensor([[True, False, True], [True, True, False]])
    team = {Columns.OBS: {OBSERVATION: observation, CRITIC_OBSERVATION: critic}, ALIVE: alive}
    logits, values = module.forward_train(team)[Columns.ACTION_DIST_INPUTS], module.compute_values(team)
    assert logits.shape == (2, 3, 5) and values.shape == (2, 3)
    assert (logits[~alive] == 0).all() and (values[~alive] == 0).all()
    for step, slot in alive.nonzero().tolist():
        row = {
            Columns.OBS: {OBSERVATION: observation[step, slot][None], CRITIC_OBSERVATION: critic[step][None]},
            SLOT: torch.tensor([slot]),
        }
        torch.testing.assert_close(module.forward_train(row)[Columns.ACTION_DIST_INPUTS][0], logits[step, slot])
        torch.testing.assert_close(module.compute_values(row)[0], values[step, slot])


def test_a_module_of_two_teams_reads_each_team_s_critic_observation() -> None:
    module = make_module(box(4), box(6), num_slots=3, team_index=[0, 1, 1])
    observation, critic = torch.rand(2, 3, 4), torch.rand(2, 2, 6)
    values = module.compute_values({Columns.OBS: {OBSERVATION: observation, CRITIC_OBSERVATION: critic}})
    row = {Columns.OBS: {OBSERVATION: observation[1, 2][None], CRITIC_OBSERVATION: critic[1, 1][None]}}
    torch.testing.assert_close(module.compute_values(row)[0], values[1, 2])


@pytest.mark.parametrize("critic", [[0, 1, 1], [0, 0, 1], [0, 1, 2], [0, 0, 0]], ids=str)
def test_what_the_actor_sorted_by_weight_set_serves_a_critic_with_the_same_sets_only(critic: list[int]) -> None:
    actor = [0, 1, 1]
    module = make_module(box(4), agent_id=True, num_slots=3, weight_index=actor, critic_weight_index=critic)
    batch = {Columns.OBS: {OBSERVATION: torch.rand(7, 4)}, SLOT: torch.tensor([0, 1, 2, 0, 2, 2, 1])}
    embeddings = module.forward_train(batch).get(Columns.EMBEDDINGS)
    assert (embeddings is not None) == (actor == critic)
    torch.testing.assert_close(module.compute_values(batch, embeddings), module.compute_values(batch), rtol=0, atol=0)
    assert Columns.EMBEDDINGS not in module.forward_inference(batch)


@pytest.mark.parametrize("own", [True, False])
def test_the_critic_reads_the_critic_observation_and_the_actor_does_not(own: bool) -> None:
    module = make_module(box(4), box(6), critic_own_observation=own)
    observation = torch.rand(4, 4)
    critic_row = torch.tensor([0, 0, 1, 1])
    outputs = []
    for critic in (torch.zeros(2, 6), torch.ones(2, 6)):
        batch = {Columns.OBS: {OBSERVATION: observation, CRITIC_OBSERVATION: critic}, CRITIC_ROW: critic_row}
        outputs.append((module.forward_train(batch)[Columns.ACTION_DIST_INPUTS], module.compute_values(batch)))
    assert torch.equal(outputs[0][0], outputs[1][0])
    assert not torch.allclose(outputs[0][1], outputs[1][1])
    assert (outputs[0][1][0] == outputs[0][1][1]).item() is not own


def test_masked_actions_have_no_probability_and_finite_statistics() -> None:
    module = make_module(box(4))
    module.observation_space  # noqa: B018
    mask = torch.tensor([[True, False, True, False, False], [True] * 5])
    batch = {Columns.OBS: {OBSERVATION: torch.rand(2, 4), ACTION_MASK: mask}}
    inputs = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    distribution = module.get_train_action_dist_cls().from_logits(inputs)
    other = module.get_train_action_dist_cls().from_logits(torch.where(mask, inputs * 2 + 1, inputs))
    assert set(torch.stack([distribution.sample()[0] for _ in range(50)]).tolist()) <= {0, 2}
    assert torch.isfinite(distribution.entropy()).all() and torch.isfinite(distribution.kl(other)).all()
    assert distribution.entropy()[0] <= np.log(2) + 1e-6


def test_kl_stays_finite_when_a_probability_underflows() -> None:
    module = make_module(box(4))
    cls = module.get_train_action_dist_cls()
    sure, other = cls.from_logits(torch.tensor([[500.0, 0, 0]])), cls.from_logits(torch.tensor([[0.0, 500, 0]]))
    assert torch.isfinite(sure.kl(other)).all() and sure.kl(other).item() == pytest.approx(500, rel=1e-3)


def test_continuous_actions_keep_their_deviation_in_bounds() -> None:
    module = make_module(box(4), action=gym.spaces.Box(-1, 1, (2,), np.float32))
    inputs = module.forward_train({Columns.OBS: {OBSERVATION: torch.rand(3, 4)}})[Columns.ACTION_DIST_INPUTS]
    assert inputs.shape == (3, 4)
    cls = module.get_train_action_dist_cls()
    extreme = cls.from_logits(torch.tensor([[0.0, 0, 1e6, -1e6]]))
    assert torch.isfinite(extreme.sample()).all() and torch.isfinite(extreme.logp(torch.zeros(1, 2))).all()


@pytest.mark.parametrize("per_module", [False, True], ids=["one spec", "a spec per module"])
def test_the_critic_is_on_the_learner_only(per_module: bool) -> None:
    """T8: stock RLlib puts critics on the runners when specs are given per module."""
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12})
    config.rl_module(model_config={"hidden": [8], "encoder": "mlp", "critic_encoder": "mlp"})
    if per_module:
        spec = RLModuleSpec(module_class=CentralizedCriticModule)
        config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"red": spec, "blue": spec}))
    config.validate()
    env = config.make_team_env()
    on_runner = config.get_multi_rl_module_spec(spaces=env.module_spaces(), inference_only=True).build()
    on_learner = config.get_multi_rl_module_spec(spaces=env.module_spaces(), inference_only=False).build()
    for module_id in ("red", "blue"):
        assert not [key for key in on_runner[module_id].get_state() if key.startswith("critic")]
        assert [key for key in on_learner[module_id].get_state() if key.startswith("critic")]
        sent = on_learner[module_id].get_state(inference_only=True)
        assert set(sent) == set(on_runner[module_id].get_state())


def test_weights_that_do_not_fit_are_refused() -> None:
    module = make_module(box(4), box(6))
    state = module.get_state()
    del state["critic.rest.1.0.bias"]
    with pytest.raises(ValueError, match=r"lacks \['critic.rest.1.0.bias'\]"):
        module.set_state(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden": [3]}, "unknown model_config key 'hiden'; did you mean 'hidden'"),
        ({"activation": "rleu"}, "did you mean 'relu'"),
        ({"encoder": "cnn"}, r"a cnn needs grids \[H, W, C\]"),
        ({"hidden": [0]}, "positive whole numbers"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_module(box(4), **options)


def test_unsupported_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="use Discrete or Box"):
        make_module(box(4), action=gym.spaces.MultiDiscrete([2, 2]))
    with pytest.raises(ValueError, match="got keys"):
        CentralizedCriticModule(
            observation_space=gym.spaces.Dict({"eyes": box(2)}), action_space=gym.spaces.Discrete(2), model_config={}
        )
