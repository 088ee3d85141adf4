"""Pictures of what a model does and of how it was trained.

For attention, [`attention_maps`] computes the numbers; [`plot_attention`] and [`attention_page`] draw them.
"""

from .attention import AttentionMap, choose
from .attention_maps import attention_maps
from .attention_page import PAGES, attention_page
from .attention_plot import plot_attention
from .block import plot_block
from .comparison import TrainedModel, plot_comparison
from .figures import IMAGES, check_suffix, title_of_source
from .heads import HeadShares, head_shares, plot_heads
from .masks import mask_of, plot_masks
from .positions import plot_positions, position_vectors, similarity_by_distance
from .rollout import Rollout, attention_rollout, decision_rollout, plot_rollout
from .schedules import plot_schedules, schedule_rates
from .training import plot_runs, plot_training

__all__ = [
    "IMAGES",
    "PAGES",
    "AttentionMap",
    "HeadShares",
    "Rollout",
    "TrainedModel",
    "attention_maps",
    "attention_page",
    "attention_rollout",
    "check_suffix",
    "choose",
    "decision_rollout",
    "head_shares",
    "mask_of",
    "plot_attention",
    "plot_block",
    "plot_comparison",
    "plot_heads",
    "plot_masks",
    "plot_positions",
    "plot_rollout",
    "plot_runs",
    "plot_schedules",
    "plot_training",
    "position_vectors",
    "schedule_rates",
    "similarity_by_distance",
    "title_of_source",
]
