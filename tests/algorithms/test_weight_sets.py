"""Weight sets train as if each were alone: equal to separate modules, independent of each other, kept when saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
import tree
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rllib_shared.algorithms import stacked_adam
from rllib_shared.algorithms.config import TeamPPOConfig
from rllib_shared.algorithms.learner import NUM_SKIPPED_WEIGHT_SETS, TeamPPOLearner
from rllib_shared.algorithms.ppo import TeamPPO
from rllib_shared.evaluation.policies import load_policies
from rllib_shared.modules import stacked as stacked_layers
from rllib_shared.sampling.fragment import ModuleFragment, TeamFragment
from rllib_shared.teams import ModuleSlots, Teams

CARTS = ["cart_0", "cart_1", "cart_2", "cart_3"]
UNEQUAL = {"scouts": ["cart_2"], "rest": ["cart_0", "cart_1", "cart_3"]}


def carts(**teams: Any) -> TeamPPOConfig:
    """Four poles, which fall one by one: the rows of a minibatch are unevenly spread over agents."""
    config = TeamPPOConfig().environment("cartpole_team", env_config={"num_agents": 4, "max_cycles": 40})
    config.teams(**teams).env_runners(num_envs_per_env_runner=2).debugging(seed=3)
    config.training(train_batch_size_per_learner=80, minibatch_size=20, num_epochs=2, lr=3e-3)
    config.training(use_kl_loss=True, kl_target=2e-3, grad_clip=0.1, entropy_coeff=0.01)
    return config.rl_module(model_config={"hidden": [160, 160]})


@pytest.fixture(params=["whole gradients", "gradients as factors"])
def gradients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of `StackedLinear`; as factors only the layer between, the others have too few weights."""
    for module in (stacked_adam, stacked_layers) if request.param != "whole gradients" else ():
        monkeypatch.setattr(module, "BLOCK_BYTES", 2 * 160 * 160 * 4)
    return request.param


@contextmanager
def running(config: TeamPPOConfig) -> Iterator[tuple[TeamPPO, TeamPPOLearner]]:
    """The algorithm and its learner."""
    algo = config.build_algo()
    try:
        yield algo, algo.learner_group._learner
    finally:
        algo.stop()


def update(learner: TeamPPOLearner, fragments: list[TeamFragment]) -> Any:
    """One PPO update, with the same minibatches for everyone."""
    np.random.seed(7)
    config = learner.config
    return learner.update(
        episodes=fragments,
        num_epochs=config.num_epochs,
        minibatch_size=config.minibatch_size,
        shuffle_batch_per_epoch=True,
        timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: 0},
    )


def weights(learner: TeamPPOLearner) -> Any:
    return learner.get_state()["rl_module"]


def assert_equal(a: Any, b: Any) -> None:
    tree.map_structure(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


def at_slots(part: ModuleFragment, rows: np.ndarray) -> ModuleFragment:
    """The fragment of some of a module's slots, in this order."""
    per_agent = {
        field.name: getattr(part, field.name) for field in fields(part) if getattr(part, field.name) is not None
    }
    return replace(
        part,
        **{
            name: array[rows] if name in ("last_observation", "alive_after") else array[:, rows]
            for name, array in per_agent.items()
        },
    )


def by_weight_set(fragment: TeamFragment, slots: ModuleSlots) -> TeamFragment:
    """The same data for a module per weight set, each a team of its own."""
    part = fragment.modules[slots.module_id]
    names = slots.weight_sets
    return TeamFragment(
        {name: at_slots(part, np.flatnonzero(slots.weight_index == g)) for g, name in enumerate(names)},
        {name: array for name in names for array in fragment.critic_observation.values()},
        {name: array for name in names for array in fragment.last_critic_observation.values()},
    )


def set_of(state: dict[str, np.ndarray], g: int) -> dict[str, np.ndarray]:
    """Weight set `g` of a stacked module, as a module of its own has it."""
    return {
        # A linear layer has [out, in], stacked ones [in, out].
        key: value[g].T if value.ndim == 3 else value[g]
        for key, value in state.items()
    }


@pytest.mark.parametrize("critic_observation", ["own", "state"])
@pytest.mark.parametrize(
    ("sharing", "teams"), [("agent", lambda agent: agent), (UNEQUAL, UNEQUAL)], ids=["per agent", "unequal groups"]
)
def test_weight_sets_equal_separately_trained_modules(
    ray_session: None, gradients: str, sharing: Any, teams: Any, critic_observation: str
) -> None:
    """Three PPO updates on the same data: weights, Adam's moments and KL coefficients to 1e-5."""
    stacked_config = carts(sharing=sharing, critic_observation=critic_observation)
    with running(stacked_config) as (algo, stacked):
        slots = algo.config.team_layout.modules["cart"]
        assert len(slots.weight_sets) == len(slots.critic_weight_sets) == len(stacked._sets["cart"].kl_coeff)
        start = weights(stacked)["cart"]
        batches = []
        for _ in range(3):
            batches.append(algo.env_runner.sample())
            update(stacked, batches[-1])
            algo.env_runner_group.sync_weights(from_worker_or_learner_group=algo.learner_group, inference_only=True)
        factors = stacked.module["cart"].unwrapped().actor.mlp[2].factors
        assert (factors is not None) == (gradients == "gradients as factors" and sharing == "agent")
        moments = stacked.get_optimizer("cart").state
        names = [name for name, _ in stacked.module["cart"].named_parameters()]
        adam = {
            name: {key: moments[p][key].numpy() for key in ("exp_avg", "exp_avg_sq")}
            for name, p in stacked.module["cart"].named_parameters()
        }
        after, coefficients = weights(stacked)["cart"], stacked._sets["cart"].kl_coeff.tolist()
    assert any(not fragment.modules["cart"].alive.all() for batch in batches for fragment in batch)

    with running(carts(teams=teams, critic_observation=critic_observation)) as (_, separate):
        order = list(slots.weight_sets)
        separate.module.set_state({name: set_of(start, g) for g, name in enumerate(order)})
        for batch in batches:
            update(separate, [by_weight_set(fragment, slots) for fragment in batch])
        for g, name in enumerate(order):
            state = weights(separate)[name]
            for key, expected in set_of(after, g).items():
                np.testing.assert_allclose(state[key], expected, atol=1e-5, err_msg=f"{name} {key}")
            for parameter, p in separate.module[name].named_parameters():
                assert parameter in names
                for key, moment in separate.get_optimizer(name).state[p].items():
                    if key in adam[parameter]:
                        expected = set_of({key: adam[parameter][key]}, g)[key]
                        np.testing.assert_allclose(moment.numpy(), expected, atol=1e-5, err_msg=f"{name} {key}")
            assert float(separate.curr_kl_coeffs_per_module[name]) == pytest.approx(coefficients[g])
        assert len({*coefficients}) > 1
        assert np.abs(after["actor.mlp.0.weight"] - start["actor.mlp.0.weight"]).max() > 1e-3


def test_one_set_is_the_shared_module_bit_for_bit(ray_session: None) -> None:
    """A group of everybody is what sharing="team" is."""
    states = []
    for teams in ({"sharing": "team"}, {"sharing": {"everybody": ["cart_*"]}}, {"sharing": "role"}):
        with running(carts(**teams)) as (algo, learner):
            for _ in range(3):
                algo.train()
            states.append((weights(learner), learner.get_state()["optimizer"]))
    assert_equal(states[0], states[1])
    assert_equal(states[0], states[2])


def test_an_agents_data_change_its_own_weights_only(ray_session: None, gradients: str) -> None:
    with running(carts(sharing="agent", critic_observation="own")) as (algo, learner):
        fragments = algo.env_runner.sample()
        start = learner.get_state()
        results = []
        for disturbed in (False, True):
            learner.set_state(start)
            for fragment in fragments if disturbed else []:
                part = fragment.modules["cart"]
                part.reward[:, 2] += np.linspace(-30, 10, len(part.reward))
                part.observation[:, 2] *= 3
            update(learner, fragments)
            results.append(weights(learner)["cart"])
        for key, calm in results[0].items():
            others = [0, 1, 3]
            np.testing.assert_array_equal(calm[others], results[1][key][others], err_msg=key)
            assert not np.array_equal(calm[2], results[1][key][2]), key


def test_a_set_with_bad_gradients_stands_still_alone(ray_session: None, gradients: str) -> None:
    with running(carts(sharing="agent", critic_observation="own")) as (algo, learner):
        fragments = algo.env_runner.sample()
        start = weights(learner)["cart"]

        def spoil(gradient: torch.Tensor) -> torch.Tensor:
            spoilt = gradient.clone()
            spoilt[1, 0, 0] = torch.nan
            return spoilt

        mlp = learner.module["cart"].unwrapped().actor.mlp
        if gradients == "whole gradients":
            hook = mlp[0].weight.register_hook(spoil)
        else:
            hook = mlp[2].register_full_backward_pre_hook(lambda _, outputs: (spoil(outputs[0]),))
        result = update(learner, fragments)
        hook.remove()
        after = weights(learner)["cart"]
        assert result["__all_modules__"][NUM_SKIPPED_WEIGHT_SETS].peek() == 8  # minibatches
        for key, value in after.items():
            np.testing.assert_array_equal(value[1], start[key][1], err_msg=key)
            assert not np.array_equal(value[0], start[key][0]), key


def test_the_order_of_slots_does_not_matter_to_a_shared_update(ray_session: None) -> None:
    with running(carts(sharing="team", critic_observation="state")) as (algo, learner):
        fragments = algo.env_runner.sample()
        start = learner.get_state()
        order = np.array([2, 0, 3, 1])
        shuffled = [
            TeamFragment(
                {"cart": at_slots(fragment.modules["cart"], order)},
                fragment.critic_observation,
                fragment.last_critic_observation,
            )
            for fragment in fragments
        ]
        results = []
        for data in (fragments, shuffled):
            learner.set_state(start)
            update(learner, data)
            results.append(weights(learner)["cart"])
        for key, value in results[0].items():
            np.testing.assert_allclose(value, results[1][key], atol=1e-5, err_msg=key)
            assert not np.array_equal(value, start["rl_module"]["cart"][key]) or "bias" in key


MODES: list[dict[str, Any]] = [
    {"sharing": "team", "critic_sharing": "agent"},
    {"sharing": "agent", "critic_sharing": "team"},
    {"sharing": "agent", "critic_observation": "own"},
    {"sharing": UNEQUAL, "critic_sharing": "all"},
    {"sharing": "team", "agent_id": True},
    {"sharing": "role", "agent_id": "binary"},
]


@pytest.mark.parametrize("teams", MODES, ids=str)
def test_every_mode_is_kept_in_checkpoints(ray_session: None, tmp_path: Any, teams: dict[str, Any]) -> None:
    """Saved, restored and trained on it is the same as never stopped; loaded for evaluation it acts the same."""
    with running(carts(**teams)) as (algo, learner):
        algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        saved = learner.get_state()
        batch = algo.env_runner.sample()
        update(learner, batch)
        went_on = learner.get_state()
        runner_module = algo.env_runner.module["cart" if "cart" in algo.env_runner.module else "shared"]
        acted = {key: value.numpy() for key, value in runner_module.state_dict().items()}
    restored = Algorithm.from_checkpoint(path)
    try:
        after = restored.learner_group._learner
        assert_equal(saved["rl_module"], weights(after))
        assert_equal(saved["optimizer"], after.get_state()["optimizer"])
        assert saved["rllib_shared_kl_coeff"] == after.get_state()["rllib_shared_kl_coeff"]
        update(after, batch)
        assert_equal(went_on["rl_module"], weights(after))
    finally:
        restored.stop()
    policies = load_policies(path)
    (module,) = policies.modules.values()
    assert_equal(acted, {key: value.numpy() for key, value in module.state_dict().items()})
    env = policies.make_team_env()
    actions = policies.act(env.reset(seed=5), deterministic=True)
    assert all((chosen >= 0).all() for chosen in actions.values())


def test_weights_per_agent_are_those_agents_weights_only(ray_session: None, tmp_path: Any) -> None:
    with running(carts(sharing="agent", critic_observation="own")) as (algo, _):
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    policies = load_policies(path)
    with pytest.raises(ValueError, match=r"tells its agents apart.*also has 'cart_4'"):
        policies.make_team_env(num_agents=5)
    # Fewer are fine: each keeps its own weights.
    few = policies.make_team_env(num_agents=2)
    full = policies.make_team_env()
    generator = torch.Generator
    both = [
        player.act(env.reset(seed=5), generator=generator().manual_seed(0), deterministic=True)["cart"][:2]
        for player, env in ((policies.in_env(few), few), (policies, full))
    ]
    np.testing.assert_array_equal(*both)


def test_teams_are_modules_again_where_nothing_is_shared_between_them() -> None:
    config = TeamPPOConfig().environment("battle_v4", env_config={"map_size": 12}).teams(sharing="agent")
    env = config.make_team_env()
    layout: Teams = env.teams
    env.close()
    assert {mid: slots.weight_sets for mid, slots in layout.modules.items()} == {
        "red": ("red_0", "red_1"),
        "blue": ("blue_0", "blue_1"),
    }
