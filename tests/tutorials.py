"""Models as the tutorials of this field print them, with the names that they have there: somebody's own models."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, mask=None):
        q, k, v = (
            layer(states).unflatten(-1, (self.num_heads, self.d_k)).transpose(1, 2)
            for layer, states in ((self.W_q, q), (self.W_k, k), (self.W_v, v))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.W_o((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, activation: nn.Module):
        super().__init__()
        self.fc1, self.fc2, self.activation = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        return self.fc2(self.activation(self.fc1(x)))


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, activation: nn.Module):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask):
        x = self.norm1(x + self.self_attn(x, x, x, mask))
        return self.norm2(x + self.feed_forward(x))


class DecoderLayer(EncoderLayer):
    def __init__(self, d_model: int, num_heads: int, d_ff: int):
        super().__init__(d_model, num_heads, d_ff, nn.ReLU())
        self.cross_attn, self.norm3 = MultiHeadAttention(d_model, num_heads), nn.LayerNorm(d_model)

    def forward(self, x, source, source_mask, mask):
        x = self.norm1(x + self.self_attn(x, x, x, mask))
        x = self.norm2(x + self.cross_attn(x, source, source, source_mask))
        return self.norm3(x + self.feed_forward(x))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, max_len: int):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        angles = torch.arange(max_len)[:, None] * torch.exp(torch.arange(0, d_model, 2) * -(math.log(1e4) / d_model))
        pe[:, 0::2], pe[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


class Transformer(nn.Module):
    """Translates; 0 is padding."""

    def __init__(self, src_vocab=50, tgt_vocab=60, d_model=32, num_heads=4, num_layers=2, d_ff=64, max_len=20):
        super().__init__()
        self.encoder_embedding = nn.Embedding(src_vocab, d_model)
        self.decoder_embedding = nn.Embedding(tgt_vocab, d_model)
        self.positional_encoding = PositionalEncoding(d_model, max_len)
        sizes = (d_model, num_heads, d_ff)
        self.encoder_layers = nn.ModuleList(EncoderLayer(*sizes, nn.ReLU()) for _ in range(num_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(*sizes) for _ in range(num_layers))
        self.fc_out = nn.Linear(d_model, tgt_vocab)

    def forward(self, source, target):
        source_mask = (source != 0)[:, None, None]
        mask = (target != 0)[:, None, :, None] & torch.ones(target.shape[1], target.shape[1]).tril().bool()
        x = self.positional_encoding(self.encoder_embedding(source))
        for layer in self.encoder_layers:
            x = layer(x, source_mask)
        y = self.positional_encoding(self.decoder_embedding(target))
        for layer in self.decoder_layers:
            y = layer(y, x, source_mask, mask)
        return self.fc_out(y)


class Seq2SeqTransformer(nn.Module):
    """Translates with `nn.Transformer`, whose post-norm stacks end with one norm more; with scaled embeddings, and with
    ids of their own for padding, 1 in the source and 2 in the target."""

    def __init__(self, src_vocab=50, tgt_vocab=60, emb_size=32, nhead=4, num_layers=2, dim_feedforward=64, max_len=20):
        super().__init__()
        self.src_tok_emb, self.tgt_tok_emb = nn.Embedding(src_vocab, emb_size), nn.Embedding(tgt_vocab, emb_size)
        self.positional_encoding = PositionalEncoding(emb_size, max_len)
        self.transformer = nn.Transformer(emb_size, nhead, num_layers, num_layers, dim_feedforward, batch_first=True)
        self.generator = nn.Linear(emb_size, tgt_vocab)

    def forward(self, source, target):
        scale = math.sqrt(self.src_tok_emb.embedding_dim)
        states = self.transformer(
            self.positional_encoding(self.src_tok_emb(source) * scale),
            self.positional_encoding(self.tgt_tok_emb(target) * scale),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf(),
            src_key_padding_mask=source == 1,
            tgt_key_padding_mask=target == 2,
            memory_key_padding_mask=source == 1,
        )
        return self.generator(states)


class BERT(nn.Module):
    """Embeds a text and, with a pooler, its first token."""

    def __init__(self, vocab_size=50, hidden=32, n_layers=2, attn_heads=4, max_len=20):
        super().__init__()
        self.token, self.segment = nn.Embedding(vocab_size, hidden), nn.Embedding(3, hidden)
        self.position, self.norm = nn.Embedding(max_len, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(EncoderLayer(hidden, attn_heads, 4 * hidden, nn.GELU()) for _ in range(n_layers))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, ids, segments, mask):
        x = self.norm(self.token(ids) + self.position(torch.arange(ids.shape[1])) + self.segment(segments))
        for layer in self.layers:
            x = layer(x, mask[:, None, None])
        return x, self.pooler(x[:, 0]).tanh()


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, n_embd: int, n_head: int):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(n_embd), CausalSelfAttention(n_embd, n_head)
        mlp = {"c_fc": nn.Linear(n_embd, 4 * n_embd), "c_proj": nn.Linear(4 * n_embd, n_embd)}
        self.ln_2, self.mlp = nn.LayerNorm(n_embd), nn.ModuleDict(mlp)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    """Writes; its projection is tied to its embedding."""

    def __init__(self, vocab_size=50, n_embd=32, n_layer=2, n_head=4, block_size=20):
        super().__init__()
        parts = {"wte": nn.Embedding(vocab_size, n_embd), "wpe": nn.Embedding(block_size, n_embd)}
        parts |= {"h": nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer)), "ln_f": nn.LayerNorm(n_embd)}
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        x = self.transformer["wte"](ids) + self.transformer["wpe"](torch.arange(ids.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


class TextClassifier(nn.Module):
    """Averages the real tokens, and projects the mean."""

    def __init__(self, vocab_size=50, d_model=32, nhead=4, num_layers=2, num_classes=3, max_len=20):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=0)
        self.pos_encoder = PositionalEncoding(d_model, max_len)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.fc = nn.Linear(d_model, num_classes)

    def forward(self, ids):
        real = ids != 0
        x = self.encoder(self.pos_encoder(self.embedding(ids)), src_key_padding_mask=~real)
        return self.fc((x * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True))
