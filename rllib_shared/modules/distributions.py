"""Action distributions: RLlib's interface, with finite numbers for masked actions and cheap sampling."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchDeterministic,
    TorchDiagGaussian,
    TorchDistribution,
)

MASKED_LOGIT = -1e9  # finite, so that probability 0 times log-probability stays 0 and not NaN
LOG_STD_RANGE = (-10.0, 2.0)


class MaskedCategorical(TorchDistribution):
    """A categorical distribution over logits `[..., A]`, some of which may be `MASKED_LOGIT`.

    KL and entropy are computed from log-softmax, so an action whose probability underflows gives a large finite
    number instead of the inf or NaN of `torch.distributions`.
    """

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        self._log_probs: torch.Tensor | None = None

    def _get_torch_distribution(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @property
    def log_probs(self) -> torch.Tensor:
        """Log-probabilities `[..., A]`."""
        if self._log_probs is None:
            self._log_probs = torch.log_softmax(self.logits, dim=-1)
        return self._log_probs

    def logp(self, value: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Log-probability `[...]` of integer actions `[...]`."""
        return self.log_probs.gather(-1, value.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """Entropy `[...]` in nats; masked actions add 0."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: TorchDistribution) -> torch.Tensor:
        """KL divergence `[...]` from this distribution to `other`, which must have the same masks."""
        assert isinstance(other, MaskedCategorical)
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def sample(self, *, sample_shape: Any = None, generator: torch.Generator | None = None) -> torch.Tensor:
        """Int64 actions `[...]`, by an exponential race: one pass instead of multinomial's several."""
        probs = self.log_probs.exp()
        if sample_shape:
            probs = probs.expand(*sample_shape, *probs.shape)
        race = torch.empty_like(probs).exponential_(generator=generator).clamp_(min=1e-20)
        return probs.div_(race).argmax(-1) if not probs.requires_grad else (probs / race).argmax(-1)

    def to_deterministic(self) -> TorchDeterministic:
        """The most probable action."""
        return TorchDeterministic(loc=self.logits.argmax(-1))

    @staticmethod
    def required_input_dim(space: gym.Space, **kwargs: Any) -> int:
        """Number of actions A."""
        assert isinstance(space, gym.spaces.Discrete)
        return int(space.n)


class ClampedGaussian(TorchDiagGaussian):
    """A diagonal Gaussian over `[..., 2A]` = (mean, log std), with log std kept within `LOG_STD_RANGE`."""

    @classmethod
    def from_logits(cls, logits: torch.Tensor, **kwargs: Any) -> ClampedGaussian:
        """Split and clamp."""
        loc, log_std = logits.chunk(2, dim=-1)
        return cls(loc=loc, scale=log_std.clamp(*LOG_STD_RANGE).exp())

    def sample(self, *, sample_shape: Any = None, generator: torch.Generator | None = None) -> torch.Tensor:
        """Float actions `[..., A]`, not yet scaled to the action space."""
        scale = self._dist.scale
        shape = (*sample_shape, *self.loc.shape) if sample_shape else self.loc.shape
        noise = torch.randn(shape, generator=generator, device=scale.device, dtype=scale.dtype)
        return self.loc + scale * noise


def distribution_for(space: gym.Space) -> type[TorchDistribution]:
    """The distribution class of an action space.

    Raises:
        ValueError: neither Discrete nor Box.
    """
    if isinstance(space, gym.spaces.Discrete):
        return MaskedCategorical
    if isinstance(space, gym.spaces.Box):
        return ClampedGaussian
    raise ValueError(f"action space {space} is not supported; use Discrete or Box")
