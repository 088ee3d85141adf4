"""Official models to convert: small, or of their published size; every parameter is random, biases and norms too."""

import inspect
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel

from tfm_zoo.converters import ARCHITECTURES, from_official
from tfm_zoo.converters.architecture import Architecture, Head
from tfm_zoo.converters.choosing import is_installed
from tfm_zoo.converters.official_names import canonical_name, is_converted

from .fields import fields_by_name
from .words import make_tokenizer

canonical_name, is_converted = cache(canonical_name), cache(is_converted)  # each reads all rules of a table
#: architectures of whose parts the others are made
FIRST = ("bert", "roberta", "distilbert", "modernbert", "deberta", "deberta-v2", "gpt2", "openai-gpt")
FIRST += ("llama", "mistral", "qwen2", "marian", "bart", "mbart", "fsmt", "m2m_100", "t5")

# Before transformers 5.21, the class takes sdpa, which leaves out the cap on its scores: a bug of those releases.
transformers.Gemma2PreTrainedModel._supports_sdpa = False

#: every kind of rotary positions, for heads of 8 channels
ROPE = fields_by_name("""
default: rope_type=default rope_theta=100.0
linear: rope_type=linear rope_theta=100.0 factor=2.0
dynamic: rope_type=dynamic rope_theta=100.0 factor=2.0
yarn: rope_type=yarn rope_theta=100.0 factor=2.0 original_max_position_embeddings=20
longrope: rope_type=longrope rope_theta=100.0 factor=2.0 original_max_position_embeddings=20
    short_factor=[1.0,1.0,1.0,1.0] long_factor=[1.0,2.0,3.0,4.0]
llama3: rope_type=llama3 rope_theta=100.0 factor=2.0 original_max_position_embeddings=20
    low_freq_factor=1.0 high_freq_factor=4.0
proportional: rope_type=proportional rope_theta=100.0 partial_rotary_factor=0.5
""")
#: sizes and settings: under the names that most official encoders have, and under those of others
TINY_OF = fields_by_name("""
TINY: vocab_size=99 hidden_size=32 num_hidden_layers=3 num_attention_heads=4 intermediate_size=48
    max_position_embeddings=40 hidden_act=silu layer_norm_eps=1e-3
TOKENS: pad_token_id=0 bos_token_id=1 eos_token_id=2
ROTARY: rope_type=default rope_theta=100.0
PARTIAL: rope_type=default rope_theta=100.0 partial_rotary_factor=0.75
WIDE: rope_type=default rope_theta=1000.0
NEAR: rope_type=default rope_theta=10.0
BY_KIND: full_attention=@WIDE sliding_attention=@NEAR
GROWING: rope_type=yarn rope_theta=100.0 factor=10.0 original_max_position_embeddings=4
    llama_4_scaling_beta=0.7 mscale=1.0 mscale_all_dim=1.0
MIXED: layer_types=['sliding_attention','full_attention','sliding_attention'] sliding_window=4
GPT: vocab_size=99 n_embd=32 n_layer=3 n_head=4 n_positions=40 layer_norm_epsilon=1e-3 TOKENS
LLAMA: TINY -hidden_act -layer_norm_eps num_key_value_heads=2 rms_norm_eps=1e-3 rope_parameters=@ROTARY TOKENS
PHI jais2: LLAMA -rms_norm_eps layer_norm_eps=1e-3
GEMMA: LLAMA hidden_activation=gelu_pytorch_tanh head_dim=10 query_pre_attn_scalar=7 final_logit_softcapping=3.0 MIXED
ALIBI: vocab_size=99 layer_norm_epsilon=1e-3 TOKENS
BART bart plbart mvp: vocab_size=99 d_model=32 encoder_layers=3 decoder_layers=2 encoder_attention_heads=4
    decoder_attention_heads=8 encoder_ffn_dim=48 decoder_ffn_dim=40 max_position_embeddings=40 activation_function=silu
T5 t5 umt5: vocab_size=99 d_model=32 d_kv=10 d_ff=48 num_layers=3 num_decoder_layers=2 num_heads=4
    relative_attention_num_buckets=8 relative_attention_max_distance=10 layer_norm_epsilon=1e-3 decoder_start_token_id=0
DEBERTA: TINY relative_attention=True pos_att_type=p2c|c2p norm_rel_ebd=layer_norm type_vocab_size=2
ENCODER: TINY -hidden_act -layer_norm_eps hidden_activation=silu norm_eps=1e-3 rope_parameters=@BY_KIND TOKENS
QWEN: LLAMA sliding_window=4 use_sliding_window=True
EXPERTS olmoe: LLAMA num_experts=5 num_experts_per_tok=3
GRANITE: LLAMA attention_multiplier=0.3 embedding_multiplier=3.0 logits_scaling=0.7 residual_multiplier=0.4
MARIAN mbart pegasus blenderbot blenderbot-small: BART scale_embedding=True
distilbert: vocab_size=99 dim=32 n_layers=3 n_heads=4 hidden_dim=48 max_position_embeddings=40 activation=silu
electra: TINY embedding_size=16 summary_activation=tanh
deberta-v2: DEBERTA position_buckets=8 max_relative_positions=10 conv_kernel_size=3
deberta-v2-absolute: TINY pooler_dropout=0.0
deberta: DEBERTA max_relative_positions=9 position_biased_input=False
albert: TINY embedding_size=16 num_hidden_groups=2 TOKENS
modernbert: ENCODER local_attention=7
modernbert-decoder: ENCODER local_attention=8 classifier_bias=True
nomic_bert: TINY head_dim=6 rope_parameters=@ROTARY
gte: TINY type_vocab_size=2 rope_parameters=@ROTARY
jina_embeddings_v3: TINY type_vocab_size=2 rope_parameters={'rope_type':'default','rope_theta':50.0}
eurobert: LLAMA head_dim=10 mask_token_id=3
gpt2: GPT n_inner=48 activation_function=gelu_new
openai-gpt: GPT afn=swish
llama gemma arcee: LLAMA attention_bias=True head_dim=10
mistral: LLAMA sliding_window=4
qwen2: QWEN max_window_layers=1
qwen3: QWEN max_window_layers=1 head_dim=10
olmo2: LLAMA attention_bias=True
olmo3: LLAMA MIXED rope_parameters=@BY_KIND
gemma2 vaultgemma: GEMMA attn_logit_softcapping=2.0
gemma3_text: GEMMA rope_parameters=@BY_KIND
embedding_gemma: GEMMA rope_parameters=@BY_KIND use_bidirectional_attention=True
smollm3: QWEN no_rope_layers=[1,0,1]
granite: GRANITE mlp_bias=True
phi: PHI qk_layernorm=True rope_parameters=@PARTIAL
phi3: LLAMA sliding_window=4 rope_parameters=@PARTIAL
gpt_bigcode: GPT n_inner=48
starcoder2: PHI sliding_window=4 norm_epsilon=1e-3
gpt_neox: PHI rope_parameters=@PARTIAL
gptj codegen: GPT n_inner=48 rotary_dim=6
opt: PHI -intermediate_size -layer_norm_eps ffn_dim=48 activation_function=gelu
falcon: LLAMA -intermediate_size -rms_norm_eps -num_key_value_heads ffn_hidden_size=48 layer_norm_epsilon=1e-3 bias=True
    new_decoder_architecture=True num_kv_heads=2
bloom: ALIBI hidden_size=48 n_layer=3 n_head=6
mixtral: LLAMA num_local_experts=4 sliding_window=4 head_dim=10 output_router_logits=True router_aux_loss_coef=0.5
qwen2_moe: EXPERTS moe_intermediate_size=20 mlp_only_layers=[1] shared_expert_intermediate_size=28
    use_sliding_window=True sliding_window=4
qwen3_moe: EXPERTS moe_intermediate_size=20 mlp_only_layers=[1] head_dim=10
mpt: ALIBI d_model=48 n_layers=3 n_heads=6 max_seq_len=40 no_bias=True
seed_oss: LLAMA head_dim=10 attention_out_bias=True mlp_bias=True residual_dropout=0.0
nemotron: PHI -layer_norm_eps head_dim=8 norm_eps=1e-3 rope_parameters=@PARTIAL
apertus: LLAMA hidden_act=xielu head_dim=10
hunyuan_v1_dense: LLAMA head_dim=10
    rope_parameters={'rope_type':'dynamic','alpha':50.0,'factor':1.0,'rope_theta':100.0}
nanochat: LLAMA hidden_act=relu2 attention_bias=True final_logit_softcapping=3.0
ministral3: LLAMA head_dim=10 sliding_window=6 rope_parameters=@GROWING
helium: LLAMA head_dim=8 attention_bias=True
ernie4_5: LLAMA head_dim=10 use_bias=True
glm glm4: LLAMA head_dim=8 rope_parameters=@PARTIAL
stablelm: PHI use_qkv_bias=True rope_parameters=@PARTIAL
cohere: PHI logit_scale=0.3
cohere2: PHI logit_scale=0.3 MIXED
exaone4: LLAMA MIXED
persimmon: PHI -num_key_value_heads rope_parameters=@PARTIAL
gpt_neo: PHI -num_key_value_heads -layer_norm_eps -rope_parameters -num_hidden_layers num_layers=3 window_size=4
    attention_types=[[['local','global'],1],[['local'],1]]
biogpt: TINY pad_token_id=0
xglm: vocab_size=99 d_model=32 num_layers=3 attention_heads=4 ffn_dim=48 pad_token_id=0 max_position_embeddings=40
olmo: LLAMA -rms_norm_eps attention_bias=True
granitemoe: GRANITE num_local_experts=4 output_router_logits=True router_aux_loss_coef=0.5
marian: MARIAN pad_token_id=3 decoder_start_token_id=3
m2m_100: BART encoder_layerdrop=0.0 decoder_layerdrop=0.0
mt5: T5 feed_forward_proj=gated-silu
ernie: TINY use_task_id=True task_type_vocab_size=4
roformer: TINY embedding_size=16 rotary_value=True
esm: TINY token_dropout=True mask_token_id=9 pad_token_id=1 position_embedding_type=rotary
clip_text_model: TINY projection_dim=20 eos_token_id=7 hidden_act=quick_gelu
siglip_text_model: TINY projection_size=20
fsmt: BART -vocab_size src_vocab_size=99 tgt_vocab_size=91
FALCON_RW: new_decoder_architecture=False multi_query=False parallel_attn=False alibi=True
    hidden_size=48 num_attention_heads=12 num_kv_heads=12
""")
#: Falcon with ALiBi, and with so many heads that its rounding shows
TINY, FALCON_RW, SPECIAL_TOKENS = (TINY_OF[name] for name in ("TINY", "FALCON_RW", "TOKENS"))


@dataclass(frozen=True)
class OfficialClass:
    """One official class: an architecture of the tables, with one of its heads."""

    architecture: Architecture
    head: Head

    @property
    def has_common_head(self) -> bool:
        """Whether other architectures have its head, too: its stack is what its language model is tested with."""
        heads = ("Classification", "Encoder", "Model", "MultipleChoice", "QuestionAnswering")
        return self.head.zoo.__name__.endswith(heads)

    @property
    def has_loss(self) -> bool:
        """Whether the class takes labels."""
        return not (self.head.is_bare or self.head.zoo_name.endswith("Projection"))

    @property
    def rules(self) -> tuple:
        """What its head is converted by."""
        has_prefix = getattr(transformers, self.head.official).base_model_prefix == self.architecture.prefix
        return (self.head.zoo_name, self.head.tensors, self.head.config, has_prefix)

    @property
    def code(self) -> tuple:
        """What its head is converted and computed by: the same for classes that differ in names alone."""
        official = getattr(transformers, self.head.official)
        codes = [inspect.unwrap(method).__code__ for method in (official.__init__, official.forward)]
        own = (self.head.official.partition("For")[0], self.architecture.prefix)
        names = (name for code in codes for name in code.co_names if not name.startswith(own))
        numbers = (value for code in codes for value in code.co_consts if isinstance(value, int | float))
        return (*self.rules, *(code.co_code for code in codes), *names, *numbers)

    @property
    def is_later(self) -> bool:
        """Whether its architecture is made of parts of others: its heads are tested in fewer ways."""
        return self.architecture.model_type not in FIRST

    @property
    def is_decoder(self) -> bool:
        return self.architecture.family == "tfm_gpt" or self.architecture.model_type == "clip_text_model"

    @property
    def pools_last(self) -> bool:
        """Whether it reads the last position, and so computes all padding where that is some."""
        return self.architecture.model_type.startswith("siglip")

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it reads both sides."""
        reads_source = self.head.official.endswith(("EncoderModel", "ForTokenClassification"))
        return self.architecture.family == "tfm_encoder_decoder" and not reads_source

    @property
    def differs_at_padding(self) -> bool:
        """Whether padding has states of its own: through ModernBERT's windows it may see nothing; in Falcon's eager
        attention, in MPT's and in GPT-Neo's what sees padding alone sees all, as all padding does in DeBERTa."""
        return self.architecture.model_type.partition("-v2")[0] in ("modernbert", "falcon", "mpt", "gpt_neo", "deberta")

    def reads_padding(self, side: str, has_labels: bool = False) -> bool:
        """Whether the head of such a class reads padding, all of it or the first position's."""
        heads = ("SequenceClassification", "MultipleChoice") if side == "left" else ()
        heads += ("QuestionAnswering",) if has_labels else ()
        return self.differs_at_padding and self.head.official.endswith(heads)

    def __str__(self) -> str:
        return (f"{self.architecture.model_type}-" if self.architecture.variant_of else "") + self.head.official


OFFICIAL_CLASSES = [
    OfficialClass(architecture, head)
    for architecture in ARCHITECTURES.values()
    if architecture.library == "transformers" and is_installed(architecture)
    for head in architecture.heads
]
BY_NAME = {str(official_class): official_class for official_class in OFFICIAL_CLASSES}


@cache
def distinct(by: str = "code") -> list[OfficialClass]:
    """The classes that tell something of their own: one of each kind of common head, by its `code` or its `rules`, and
    no bare decoder that a language model contains; and the classes of an architecture that would be left with none. A
    stack is what its language model is tested with."""
    common = [each for each in OFFICIAL_CLASSES if each.has_common_head]
    first = {getattr(each, by): each for each in reversed(common)}
    contained = [each for each in common if each.is_later and each.is_decoder and each.head.is_bare]
    known = [each for each in common if each is not first[getattr(each, by)] or each in contained]
    left = {each.architecture for each in OFFICIAL_CLASSES if each not in known}
    return [each for each in OFFICIAL_CLASSES if each not in known or each.architecture not in left]


def build(official_class: OfficialClass, seed: int = 0, labels: int | None = None, **config) -> PreTrainedModel:
    """An official model with random weights, made from its configuration, in evaluation mode."""
    torch.manual_seed(seed)
    has_two_labels = official_class.head.official.endswith(("QuestionAnswering", "AlbertForPreTraining"))
    labels = labels or (2 if has_two_labels else 3)
    # Copied, since some official configurations write into what they are given.
    config = CONFIG_MAPPING[official_class.architecture.official_type](num_labels=labels, **deepcopy(config))
    model_class = getattr(transformers, official_class.head.official)
    if not model_class._supports_sdpa:
        config._attn_implementation = "eager"
    model = model_class(config)
    randomize(model, official_class.architecture)
    return model.eval()


def build_tiny(official_class: OfficialClass, seed: int = 0, dropout: bool = False, **config) -> PreTrainedModel:
    architecture = official_class.architecture
    usual = vars(CONFIG_MAPPING[architecture.official_type]())
    usual = {name: rate for name, rate in usual.items() if "drop" in name and isinstance(rate, float | None)}
    tags_tokens = any(head.official.endswith("TokenClassification") for head in architecture.heads)
    if architecture.family == "tfm_gpt" and tags_tokens and "hidden_dropout_prob" not in usual:
        usual |= {"classifier_dropout": 0.0}  # which these classes read, though no configuration has it
    rates = {name: 0.0 for name, rate in usual.items() if rate is not None}
    if dropout:  # each with a rate of its own
        rates = {name: number / 10 for number, name in enumerate(usual, start=1) if "layerdrop" not in name}
    return build(official_class, seed, **TINY_OF.get(architecture.model_type, TINY) | rates | config)


def both(name: str, **fields) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A tiny official model, by the name of its class, and the zoo's of it."""
    official = build_tiny(BY_NAME[name], **fields)
    return official, from_official(official)


def official_folder(folder: Path, name: str, **fields) -> Path:
    """Saves a tiny official model, by the name of its class, with a tokenizer."""
    for each in (build_tiny(BY_NAME[name], **fields), make_tokenizer()):
        each.save_pretrained(folder)
    return folder


def keep_every_layer() -> AbstractContextManager:
    """Before transformers 5.23, official stacks draw a number for each layer, even where no layer is dropped."""
    return patch.object(torch, "rand", torch.ones)


@torch.no_grad()
def randomize(model: PreTrainedModel, architecture: Architecture) -> None:
    """Moves what initialisation leaves at zero or one, and makes matrices large enough to turn and bend what they read:
    no bias and no norm can be forgotten unseen, and attention is not uniform."""
    initial = getattr(model.config, "initializer_range", None) or getattr(model.config, "init_std", None)
    for name, parameter in model.named_parameters():
        if not is_converted(architecture, name):  # sinusoids
            continue
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        else:
            parameter.mul_(parameter.shape[-1] ** -0.5 / (initial or parameter.std()))
    if hasattr(model, "final_logits_bias"):  # a buffer
        model.final_logits_bias.normal_()
