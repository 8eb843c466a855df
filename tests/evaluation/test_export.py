"""One agent's policy as files: the team module's actions, without teams, slots, Ray or this package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModule
from typer.testing import CliRunner

from rllib_shared import CentralizedCriticModule, export_policy, load_policies
from rllib_shared.cli import app
from tests.evaluation.exporting import (
    BATTLE,
    BATTLE_CNN,
    GROUPS,
    MASK_IN_INFO,
    MASK_IN_OBSERVATION,
    SPREAD,
    config_of,
    exported,
    greedy_action,
    play,
    random_policies,
)

EVERY_WAY = [(BATTLE, sharing, id_) for sharing in ("team", "all", "role", "agent", GROUPS) for id_ in (False, True)]
EVERY_WAY += [(BATTLE, sharing, "binary") for sharing in ("team", "all", "agent", GROUPS)]
EVERY_WAY += [(BATTLE_CNN, sharing, id_) for sharing in ("team", "agent") for id_ in (False, True)]
EVERY_WAY += [(SPREAD, sharing, id_) for sharing in ("team", "agent") for id_ in (False, "binary")]
EVERY_WAY += [(masked, "agent", False) for masked in (MASK_IN_INFO, MASK_IN_OBSERVATION)]


@pytest.mark.parametrize(("game", "sharing", "agent_id"), EVERY_WAY)
def test_an_exported_agent_acts_as_in_its_team(game: Any, sharing: Any, agent_id: Any, tmp_path: Path) -> None:
    policies = random_policies(config_of(game, sharing, agent_id))
    every = play(policies)
    for module_id, slot in ((policies.teams.module_ids[0], 0), (policies.teams.module_ids[-1], -1)):
        agent = policies.teams.modules[module_id].agents[slot]
        folder = export_policy(policies, agent=agent, out=tmp_path / agent)
        arrays, inputs, greedy = every[module_id].rows((every[module_id].alive[:, slot], slot))
        for policy in exported(folder):
            answer = policy(arrays)
            np.testing.assert_allclose(answer, inputs, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(greedy_action(folder, answer), greedy, rtol=0, atol=1e-6)


@pytest.mark.parametrize("game", [BATTLE, BATTLE_CNN, SPREAD, MASK_IN_INFO])
def test_a_shared_policy_gives_all_its_agents_bit_equal_logits(game: Any, tmp_path: Path) -> None:
    policies = random_policies(config_of(game, "team", False))
    for module_id, played in play(policies).items():
        ways = exported(export_policy(policies, policy=module_id, out=tmp_path / module_id))
        for step, alive in enumerate(played.alive):
            arrays, inputs, _ = played.rows((step, alive))
            for policy in ways:
                np.testing.assert_array_equal(policy(arrays), inputs)


def test_agents_die_and_actions_are_masked_in_these_games() -> None:
    """Else the tests above would show less than they say."""
    red = play(random_policies(config_of(BATTLE, "team", False)))["red"]
    assert red.alive.sum() < 0.9 * red.alive.size
    assert red.action_mask is not None and red.action_mask.mean() < 0.9
    assert len(np.unique(red.greedy[red.alive])) > 2


def test_agents_of_one_team_have_different_policies_after_export(tmp_path: Path) -> None:
    policies = random_policies(config_of(BATTLE, "team", True))
    arrays, _, _ = play(policies)["red"].rows((slice(None), 0))
    zero, one = (exported(export_policy(policies, agent=a, out=tmp_path / a))[0](arrays) for a in ("red_0", "red_1"))
    assert np.abs(zero - one).max() > 0.1


ALONE = """
import sys
import numpy as np
import torch
sys.modules["rllib_shared"] = sys.modules["ray"] = None  # importing either fails
folder, recorded = sys.argv[1], np.load(sys.argv[2])
observation, mask = (torch.from_numpy(recorded[name]) for name in ("observation", "action_mask"))
script = torch.jit.load(folder + "/policy.pt")(observation, mask).detach().numpy()
del sys.modules["rllib_shared"], sys.modules["ray"]

import ray
from ray.rllib.core.rl_module.rl_module import RLModule
module = RLModule.from_checkpoint(folder)
obs = {"observation": observation, "action_mask": mask}
inputs = module.forward_inference({"obs": obs})["action_dist_inputs"]
action = module.get_inference_action_dist_cls().from_logits(inputs).to_deterministic().sample()
assert not ray.is_initialized(), "loading and acting must not start Ray"
np.savez(sys.argv[3], script=script, module=inputs.detach().numpy(), action=action.numpy())
"""


@pytest.fixture(scope="module")
def own_weights(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of one policy per agent, with ids, after one iteration."""
    path = tmp_path_factory.mktemp("own") / "checkpoint"
    algo = config_of(BATTLE, "agent", True).build_algo()
    algo.train()
    algo.save_to_path(path)
    algo.stop()
    return path


def test_a_fresh_process_acts_with_an_exported_checkpoint(own_weights: Path, tmp_path: Path) -> None:
    folder = export_policy(own_weights, agent="blue_2", out=tmp_path / "blue_2")
    played = play(load_policies(own_weights))["blue"]
    arrays, inputs, greedy = played.rows((np.flatnonzero(played.alive[:, 2]), 2))
    np.savez(tmp_path / "recorded.npz", observation=arrays[0].numpy(), action_mask=arrays[1].numpy())
    arguments = [str(folder), str(tmp_path / "recorded.npz"), str(tmp_path / "answer.npz")]
    done = subprocess.run([sys.executable, "-c", ALONE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = np.load(tmp_path / "answer.npz")
    for name in ("script", "module"):
        np.testing.assert_allclose(answer[name], inputs, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(answer["action"], greedy)


def test_the_folder_says_what_is_in_it(own_weights: Path, tmp_path: Path) -> None:
    folder = export_policy(own_weights, agent="red_1", out=tmp_path / "new" / "red_1")
    said = json.loads((folder / "policy.json").read_text())
    assert (said["agent"], said["policy"], said["weight_set"]) == ("red_1", "red", "red_1")
    assert said["observation"] == {"shape": [13, 13, 5], "dtype": "float32"}
    assert said["action_mask"] == {"shape": [21], "dtype": "bool"}
    assert said["action"] == {"type": "discrete", "n": 21, "dtype": "int64"}
    assert said["versions"]["torch"] == torch.__version__
    module = RLModule.from_checkpoint(folder)
    assert type(module) is CentralizedCriticModule and module.inference_only and not module.needs_slot
    assert not hasattr(module, "critic")


@pytest.mark.parametrize(("group", "member"), [("scouts", "blue_1"), ("rest", "red_4")])
def test_a_group_is_exported_by_its_name(group: str, member: str, tmp_path: Path) -> None:
    policies = random_policies(config_of(BATTLE, GROUPS, False))
    by_group = export_policy(policies, policy=group, out=tmp_path / group)
    by_agent = export_policy(policies, agent=member, out=tmp_path / member)
    states = [RLModule.from_checkpoint(folder).get_state() for folder in (by_group, by_agent)]
    for name, tensor in states[0].items():
        np.testing.assert_array_equal(tensor, states[1][name])
    assert json.loads((by_group / "policy.json").read_text())["weight_set"] == group


def test_an_export_may_be_written_again_but_nothing_else_is_overwritten(tmp_path: Path) -> None:
    policies = random_policies(config_of(SPREAD, "team", False))
    for _ in range(2):
        export_policy(policies, policy="agent", out=tmp_path / "again")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match="other is not empty and no earlier export; give a new folder"):
        export_policy(policies, policy="agent", out=tmp_path / "other")
    with pytest.raises(FileExistsError, match=r"thesis.tex is a file; give a folder"):
        export_policy(policies, policy="agent", out=tmp_path / "other" / "thesis.tex")


@pytest.mark.parametrize(
    ("sharing", "agent_id", "whose", "sentence"),
    [
        ("team", False, {}, "give either agent=... or policy=..., got agent=None and policy=None"),
        ("team", False, {"agent": "red_0", "policy": "red"}, "give either agent=... or policy=..."),
        ("team", False, {"agent": "read_1"}, "unknown agent 'read_1'; did you mean 'red_1'"),
        ("team", False, {"policy": "rod"}, "unknown policy 'rod'; did you mean 'red'"),
        ("team", True, {"policy": "red"}, r"policy 'red' tells its \d+ agents apart by their ids; give agent=..."),
        ("agent", False, {"policy": "red"}, r"policy 'red' has \d+ weight sets; give agent=...$"),
        (GROUPS, False, {"policy": "red-blue"}, "policy 'red-blue' has 2 weight sets; give .* or policy='scouts'$"),
    ],
)
def test_what_is_no_single_policy_is_refused_and_nothing_is_written(
    sharing: Any, agent_id: bool, whose: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    policies = random_policies(config_of(BATTLE, sharing, agent_id))
    with pytest.raises(ValueError, match=sentence):
        export_policy(policies, **whose, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_policy_that_was_not_loaded_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    blue = load_policies(checkpoint, module_ids=["blue"])
    with pytest.raises(ValueError, match=r"policy 'red' of .* was not loaded"):
        export_policy(blue, agent="red_0", out=tmp_path / "out")


class Own(CentralizedCriticModule):
    """A user's module."""


def test_a_module_of_another_class_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    policies = load_policies(checkpoint)
    policies.modules["red"].__class__ = Own
    with pytest.raises(ValueError, match=r"policy 'red' of .* is a Own; only a CentralizedCriticModule can be"):
        export_policy(policies, policy="red", out=tmp_path / "out")


def command(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of `rllib-shared export`."""
    outcome = CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "120"})
    return outcome.exit_code, outcome.stdout, outcome.stderr


@pytest.mark.parametrize("whose", [("--agent", "red_3"), ("--policy", "red")])
def test_the_command_writes_the_folder_and_prints_lines_that_run(
    checkpoint: Path, tmp_path: Path, whose: tuple[str, str]
) -> None:
    code, out, err = command(checkpoint.parent.parent, *whose, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    first, *snippet = out.splitlines()
    assert first.startswith(f"{tmp_path / 'out'}: an RLModule checkpoint, policy.pt")
    names: dict[str, Any] = {"torch": torch, "observation": torch.zeros(4, 13, 13, 5)}
    exec("\n".join(snippet), names)
    assert len(snippet) == 3 and names["action"].shape == (4,)


def test_the_command_refuses_in_one_sentence(own_weights: Path, tmp_path: Path) -> None:
    code, out, err = command(own_weights, "--policy", "red", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err.startswith("policy 'red' has ") and err.endswith(" weight sets; give agent=...\n")
    code, _, err = command(tmp_path / "nothing", "--agent", "red_0", "--out", tmp_path / "out")
    assert (code, err) == (2, f"no such checkpoint or run: {tmp_path / 'nothing'}\n")
