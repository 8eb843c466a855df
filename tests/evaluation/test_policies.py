"""From a checkpoint to actions: the same as the algorithm's, without Ray, and with clear refusals."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.algorithms.ppo import PPOConfig

from rllib_shared import TeamPPO, load_policies
from rllib_shared.envs.registry import make_env, make_team_env
from rllib_shared.envs.team_env import NO_ACTION
from rllib_shared.modules.opponents import ModuleView

# Runs in a fresh process: acts on recorded observations and writes its actions.
ACT_ALONE = """
import sys
import numpy as np
import ray
import torch
import rllib_shared.envs.registry as registry

def no_env(*args, **kwargs):
    raise AssertionError("loading must not make the environment")

registry.make_env = no_env
from rllib_shared import load_policies
from rllib_shared.modules.opponents import ModuleView

recorded = np.load(sys.argv[2])
policies = load_policies(sys.argv[1])
actions = {}
for mode in ("sampled", "deterministic"):
    torch.manual_seed(7)
    chosen = [
        policies.act(
            {m: ModuleView(recorded[f"{mode}/{m}/observation"][t][None], recorded[f"{mode}/{m}/alive"][t][None], None)
             for m in ("red", "blue")},
            deterministic=mode == "deterministic",
        )
        for t in range(len(recorded[f"{mode}/red/alive"]))
    ]
    for m in ("red", "blue"):
        actions[f"{mode}/{m}"] = np.stack([step[m][0] for step in chosen])
assert not ray.is_initialized(), "loading and acting must not start Ray"
np.savez(sys.argv[3], **actions)
"""


def test_a_fresh_process_chooses_the_actions_of_the_restored_algorithm(checkpoint: Path, tmp_path: Path) -> None:
    """T15: bit for bit, sampled and deterministic, with the runner's own recorded steps."""
    algo = TeamPPO.from_checkpoint(checkpoint)
    recorded, expected = {}, {}
    for mode, explore in (("sampled", True), ("deterministic", False)):
        torch.manual_seed(7)
        (fragment,) = algo.env_runner.sample(num_timesteps=20, explore=explore, force_reset=True)
        for module_id, part in fragment.modules.items():
            recorded[f"{mode}/{module_id}/observation"] = part.observation[: len(part.alive)]
            recorded[f"{mode}/{module_id}/alive"] = part.alive
            expected[f"{mode}/{module_id}"] = part.action
    algo.stop()
    np.savez(tmp_path / "recorded.npz", **recorded)
    arguments = [str(checkpoint), str(tmp_path / "recorded.npz"), str(tmp_path / "actions.npz")]
    done = subprocess.run(
        [sys.executable, "-c", ACT_ALONE, *arguments], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    actions = np.load(tmp_path / "actions.npz")
    for key, wanted in expected.items():
        np.testing.assert_array_equal(actions[key], wanted, err_msg=key)
    assert (expected["sampled/red"] != expected["deterministic/red"]).any()


def test_loaded_policies_have_no_critic(checkpoint: Path) -> None:
    for module in load_policies(checkpoint).modules.values():
        assert not [name for name, _ in module.named_parameters() if "critic" in name]


def test_a_step_of_the_environment_gives_the_actions_that_its_next_step_takes(checkpoint: Path) -> None:
    policies = load_policies(checkpoint)
    env = policies.make_team_env()
    step = env.reset(seed=5)
    while not step.over:
        step = env.step(policies.act(step, generator=torch.Generator().manual_seed(1)))
    assert step.outcome is not None
    env.close()


def test_dead_agents_get_no_action_and_change_nobody_elses(checkpoint: Path) -> None:
    policies = load_policies(checkpoint)
    env = policies.make_team_env()
    step = env.reset(seed=5)
    before = policies.act(step, deterministic=True)["red"]
    red = step.modules["red"]
    red.alive[2] = False
    red.observation[2] = np.nan
    after = policies.act(step, deterministic=True)["red"]
    assert after[2] == NO_ACTION
    np.testing.assert_array_equal(np.delete(after, 2), np.delete(before, 2))


@pytest.mark.parametrize("level", ["checkpoint", "trial", "run"])
def test_a_checkpoint_is_found_from_its_trial_and_its_run(checkpoint: Path, level: str) -> None:
    given = {"checkpoint": checkpoint, "trial": checkpoint.parent, "run": checkpoint.parent.parent}[level]
    assert load_policies(given).path == checkpoint


def test_paths_may_be_relative_and_have_spaces(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent.parent.parent)
    assert " " in str(checkpoint)
    assert set(load_policies("a run/trial/checkpoint_000000").modules) == {"red", "blue"}
    assert set(load_policies(Path("a run")).modules) == {"red", "blue"}


def test_some_modules_can_be_loaded_alone(checkpoint: Path) -> None:
    policies = load_policies(checkpoint, module_ids=["blue"])
    step = policies.make_team_env().reset(seed=5)
    assert list(policies.act(step)) == ["blue"]
    with pytest.raises(ValueError, match="unknown module 'blu'; did you mean 'blue'"):
        load_policies(checkpoint, module_ids=["blu"])


def test_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such checkpoint or run"):
        load_policies(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="is no RLlib checkpoint"):
        load_policies(tmp_path)


def test_another_algorithms_checkpoint_is_refused(ray_session: None, tmp_path: Path) -> None:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    algo = config.build_algo()
    algo.save_to_path(tmp_path / "cartpole")
    algo.stop()
    with pytest.raises(ValueError, match="was saved by PPO, which is not an algorithm for teams"):
        load_policies(tmp_path / "cartpole")


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copied"))


def test_a_damaged_checkpoint_is_refused(copied: Path) -> None:
    file = copied / "class_and_ctor_args.pkl"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"class_and_ctor_args.pkl cannot be read \(.*it is damaged"):
        load_policies(copied)
    file.unlink()
    with pytest.raises(ValueError, match=r"incomplete: .*class_and_ctor_args.pkl is missing"):
        load_policies(copied)


def test_a_checkpoint_without_one_of_its_modules_is_refused(copied: Path) -> None:
    shutil.rmtree(copied / "learner_group/learner/rl_module/blue")
    with pytest.raises(ValueError, match=r"incomplete: .*blue.* is missing"):
        load_policies(copied)


@pytest.mark.parametrize("damage", ["missing", "misshapen"])
def test_weights_that_do_not_fit_are_refused(copied: Path, damage: str) -> None:
    file = copied / "learner_group/learner/rl_module/red/module_state.pkl"
    state = pickle.loads(file.read_bytes())
    name = next(name for name in state if name.startswith("actor") and name.endswith("weight"))
    if damage == "missing":
        del state[name]
    else:
        state[name] = state[name][:, :-1]
    file.write_bytes(pickle.dumps(state))
    with pytest.raises(ValueError, match=f"module 'red' of .* cannot be restored: .*{name}"):
        load_policies(copied)


def test_policies_act_for_teams_of_another_size(checkpoint: Path) -> None:
    policies = load_policies(checkpoint)
    env = policies.make_team_env(map_size=25)
    assert env.teams.modules["red"].num_slots == 20
    assert policies.in_env(env).act(env.reset(seed=5))["red"].shape == (20,)


def test_an_environment_with_other_observations_is_refused(checkpoint: Path) -> None:
    policies = load_policies(checkpoint)
    with pytest.raises(ValueError, match=r"module 'red' .* observation space .*13, 13, 5.* has .*13, 13, 9"):
        policies.make_team_env(minimap_mode=True)


def test_an_environment_with_other_actions_is_refused(checkpoint: Path) -> None:
    class TwoActions:
        """Battle whose agents have two actions."""

        def __init__(self) -> None:
            self.env = make_env("battle_v4", map_size=16)

        def __getattr__(self, name: str) -> object:
            return getattr(self.env, name)

        def action_space(self, agent: str) -> gym.Space:
            return gym.spaces.Discrete(2)

        @property
        def unwrapped(self) -> TwoActions:
            return self

    env = make_team_env(TwoActions, critic_observation="own")
    with pytest.raises(ValueError, match=r"module 'red' .* action space Discrete\(21\), but .* has Discrete\(2\)"):
        load_policies(checkpoint).in_env(env)


def test_an_environment_with_other_teams_is_refused(checkpoint: Path) -> None:
    env = make_team_env("coin_game", critic_observation="own")
    with pytest.raises(ValueError, match="trained for the teams 'red', 'blue', but there are 'player'"):
        load_policies(checkpoint).in_env(env)


def test_arrays_without_one_of_the_modules_are_refused(checkpoint: Path) -> None:
    view = ModuleView(np.zeros((1, 6, 13, 13, 5), np.float32), np.ones((1, 6), bool), None)
    with pytest.raises(ValueError, match="act for the modules 'red', 'blue', but got 'red'"):
        load_policies(checkpoint).act({"red": view})
