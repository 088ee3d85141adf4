"""The zoo's names of a block's projections."""

#: those that official classes may hold in one piece
QKV = tuple(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv")
GATE_UP = tuple(f"layers.{{i}}.mlp.{part}_proj" for part in ("gate", "up"))

ATTENTION = (*QKV, "layers.{i}.self_attn.o_proj")
GATED = (*GATE_UP, "layers.{i}.mlp.down_proj")
