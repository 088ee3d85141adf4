"""Feed-forwards of experts: a router chooses a few for each token; the loss that keeps all of them in use."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.integrations import use_experts_implementation

from .batch import is_pad_mask
from .layers import TfmMLP


class TfmSparseMLP(nn.Module):
    """A weighted sum of a few of `num_local_experts` gated feed-forwards, chosen for each token (Shazeer et al. 2017);
    and of one that all share, with a gate that says how much of it a token takes (Qwen2-MoE), if there is one."""

    def __init__(self, config):
        super().__init__()
        self.gate = TfmRouter(config)
        self.experts = TfmExperts(config)
        inner = config.shared_expert_intermediate_size
        self.shared_expert = TfmMLP(config, inner) if inner else None
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False) if inner else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(batch, length, hidden_size)` in and out."""
        tokens = hidden_states.flatten(0, -2)
        _, weights, chosen = self.gate(tokens)
        output = self.experts(tokens, chosen, weights).view_as(hidden_states)
        if self.shared_expert is None:
            return output
        return output + self.shared_expert_gate(hidden_states).sigmoid() * self.shared_expert(hidden_states)


class TfmRouter(nn.Module):
    """Chooses experts by their probability, a softmax over all, and weights them by it."""

    def __init__(self, config):
        super().__init__()
        self.top_k, self.norm_topk_prob = config.num_experts_per_tok, config.norm_topk_prob
        self.weight = nn.Parameter(torch.empty(config.num_local_experts, config.hidden_size))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.LongTensor]:
        """`(tokens, hidden_size)` to logits `(tokens, num_local_experts)`, and the weights and numbers of the chosen
        experts, each `(tokens, num_experts_per_tok)`."""
        logits = F.linear(tokens, self.weight)
        weights, chosen = logits.softmax(dim=-1, dtype=torch.float32).topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True) if self.norm_topk_prob else weights
        return logits, weights, chosen


@use_experts_implementation
class TfmExperts(nn.Module):
    """All experts of a layer: `down(act(gate(x)) * up(x))` each. transformers' `experts_implementation` computes them;
    `forward` is the one that it calls `"eager"`."""

    def __init__(self, config):
        super().__init__()
        self.num_experts, width, inner = config.num_local_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(self.num_experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(self.num_experts, width, inner))
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, tokens: torch.Tensor, chosen: torch.LongTensor, weights: torch.Tensor) -> torch.Tensor:
        """`(tokens, hidden_size)` in and out; `chosen` and `weights` are [`TfmRouter`]'s. (The experts of other
        processes have the number `num_experts`.)"""
        output = torch.zeros_like(tokens)
        for expert in chosen[chosen < self.num_experts].unique().tolist():
            places, choices = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(tokens[places], self.gate_up_proj[expert]).chunk(2, dim=-1)
            down = F.linear(self.act_fn(gate) * up, self.down_proj[expert]) * weights[places, choices, None]
            output.index_add_(0, places, down.to(output.dtype))
        return output


def load_balancing_loss(router_logits: tuple[torch.Tensor, ...], config, mask: torch.Tensor | None) -> torch.Tensor:
    """`experts * sum(shares * means)`: of each expert, the share of choices that fall on it and its mean probability,
    both over the real tokens of all layers (Fedus et al. 2021, equations 4 to 6). The logits are of each sparse layer,
    `(batch * length, num_local_experts)`; only a mask of padding is read."""
    probabilities = torch.stack([logits.to(router_logits[0]).softmax(dim=-1).float() for logits in router_logits])
    chosen = torch.zeros_like(probabilities)
    chosen.scatter_(-1, probabilities.topk(config.num_experts_per_tok, dim=-1).indices, 1.0)
    real = torch.ones_like(probabilities[0, :, :1])
    if is_pad_mask(mask):
        length = len(real) // len(mask)
        real = mask[:, -length:].reshape(-1, 1).to(real)
    count = len(router_logits) * real.sum()
    shares, means = ((values * real).sum(dim=(0, 1)) / count for values in (chosen, probabilities))
    return config.num_local_experts * (shares * means).sum()
