"""Published models: what `config.json` has beside the defaults of the official configuration."""

from .fields import fields_by_name

DEFAULTS = """
bert-base distilbert-base electra-small xlm-roberta-xl megatron-bert-345m bert-for-seq-generation
roformer-chinese-base plbart-base mvp modernbert-base granite-embedding-english-r2 nomic-embed-text-v1.5
gte-multilingual-base jina-embeddings-v3 gpt2 gemma-2-2b clip-vit-base-patch32-text siglip-base-patch16-224-text
smollm3-3b phi-3-mini gpt-j-6b opt-125m falcon-7b starcoder2-3b mixtral-8x7b jais-2-8b helium-1-preview-2b
ernie-4.5-0.3b glm-4-9b glm-4-9b-0414 stablelm-3b command-r persimmon-8b biogpt xglm-564m
"""
#: name -> fields
PUBLISHED = {name: {} for name in DEFAULTS.split()} | fields_by_name("""
roberta-base: vocab_size=50265 max_position_embeddings=514 type_vocab_size=1 layer_norm_eps=1e-5
albert-base-v2: hidden_size=768 num_attention_heads=12 intermediate_size=3072
efficient-mlm-m0.40: hidden_size=1024 num_hidden_layers=24 num_attention_heads=16 intermediate_size=4096
    max_position_embeddings=514 type_vocab_size=1 layer_norm_eps=1e-5
data2vec-text-base: vocab_size=50265 max_position_embeddings=514 type_vocab_size=1 layer_norm_eps=1e-5
ernie-3.0-base-zh: vocab_size=40000 max_position_embeddings=2048 type_vocab_size=4 use_task_id=True layer_norm_eps=1e-5
esm2-8m: vocab_size=33 hidden_size=320 num_hidden_layers=6 num_attention_heads=20 intermediate_size=1280
    position_embedding_type=rotary token_dropout=True mask_token_id=32 pad_token_id=1 emb_layer_norm_before=False
    layer_norm_eps=1e-5 hidden_dropout_prob=0.0 attention_probs_dropout_prob=0.0
mpnet-base: max_position_embeddings=514 layer_norm_eps=1e-5
mmbert-base: vocab_size=256000
mmbert-small: vocab_size=256000 hidden_size=384 num_attention_heads=6
ettin-encoder-17m: hidden_size=256 intermediate_size=384 num_hidden_layers=7 num_attention_heads=4
granite-embedding-small-english-r2: hidden_size=384 intermediate_size=1536 num_hidden_layers=12 num_attention_heads=12
eurobert-210m jina-embeddings-v5-text-nano: rope_parameters={'rope_type':'default','rope_theta':250000.0}
smollm-135m: vocab_size=49152 hidden_size=576 num_hidden_layers=30 num_attention_heads=9 num_key_value_heads=3
    intermediate_size=1536 rms_norm_eps=1e-5 tie_word_embeddings=True
qwen3-0.6b jina-embeddings-v5-text-small: hidden_size=1024 num_hidden_layers=28 num_attention_heads=16
    num_key_value_heads=8 intermediate_size=3072 max_position_embeddings=40960
    rope_parameters={'rope_type':'default','rope_theta':1000000.0} tie_word_embeddings=True
    bos_token_id=151643 eos_token_id=151645
qwen3-embedding-0.6b: qwen3-0.6b vocab_size=151669 max_position_embeddings=32768
qwen3-reranker-0.6b: qwen3-0.6b vocab_size=151669
qwen3-30b-a3b: num_hidden_layers=48 head_dim=128 moe_intermediate_size=768 norm_topk_prob=True
gemma-2b: hidden_size=2048 intermediate_size=16384 num_hidden_layers=18 num_attention_heads=8 num_key_value_heads=1
gemma-3-270m: vocab_size=262144 hidden_size=640 intermediate_size=2048 num_hidden_layers=18 num_attention_heads=4
    num_key_value_heads=1 max_position_embeddings=32768 sliding_window=512
embeddinggemma-300m: vocab_size=262144 hidden_size=768 intermediate_size=1152 num_hidden_layers=24 num_attention_heads=3
    num_key_value_heads=1 max_position_embeddings=2048 sliding_window=512 use_bidirectional_attention=True
DEBERTA: relative_attention=True position_buckets=256 norm_rel_ebd=layer_norm share_att_key=True
    pos_att_type=p2c|c2p position_biased_input=False
deberta-v3-base: DEBERTA hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072
mdeberta-v3-base: deberta-v3-base vocab_size=251000
deberta-v2-xlarge: DEBERTA attention_head_size=64 conv_kernel_size=3 conv_act=gelu
deberta-base: relative_attention=True pos_att_type=c2p|p2c position_biased_input=False
olmo-2-1b: vocab_size=100352 hidden_size=2048 intermediate_size=8192 num_hidden_layers=16 num_attention_heads=16
olmo-3-7b: vocab_size=100278
granite-3.3-2b: vocab_size=49159 hidden_size=2048 intermediate_size=8192 num_hidden_layers=40 num_attention_heads=32
    num_key_value_heads=8 tie_word_embeddings=True
phi-2: hidden_size=2560 intermediate_size=10240 num_hidden_layers=32
pythia-160m: vocab_size=50304 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072
    eos_token_id=0
opt-350m: hidden_size=1024 num_hidden_layers=24 ffn_dim=4096 num_attention_heads=16 word_embed_proj_dim=512
    do_layer_norm_before=False
falcon-rw-1b: vocab_size=50304 hidden_size=2048 num_hidden_layers=24 num_attention_heads=32 bias=True alibi=True
    multi_query=False parallel_attn=False
bloom-560m: hidden_size=1024 n_layer=24 n_head=16
starcoderbase-1b: vocab_size=49152 n_embd=2048 n_head=16 n_layer=24 n_positions=8192
seed-oss-36b: hidden_size=5120
afm-4.5b: vocab_size=128004 num_hidden_layers=36 num_attention_heads=20 num_key_value_heads=4 head_dim=128
command-r7b: hidden_size=4096 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 intermediate_size=14336
    logit_scale=0.25
exaone-4.0-1.2b: hidden_size=2048 num_hidden_layers=30 num_attention_heads=32 num_key_value_heads=8
    intermediate_size=4096 tie_word_embeddings=True sliding_window=None
vaultgemma-1b: hidden_size=1152 intermediate_size=6912 num_attention_heads=4 sliding_window=512
gpt-neo-125m: hidden_size=768 num_layers=12 num_heads=12 attention_types=[[['global','local'],6]]
codegen-350m: n_embd=1024 n_layer=20 vocab_size=51200 rotary_dim=32
olmo-1b: hidden_size=2048 intermediate_size=8192 num_hidden_layers=16 num_attention_heads=16 tie_word_embeddings=True
olmoe-1b-7b: intermediate_size=1024
granite-3.1-1b-a400m: vocab_size=49155 hidden_size=1024 intermediate_size=512 num_hidden_layers=24
    num_attention_heads=16 num_key_value_heads=8 num_local_experts=32 num_experts_per_tok=8 tie_word_embeddings=True
opus-mt: vocab_size=58101 pad_token_id=58100 decoder_start_token_id=58100 d_model=512 encoder_layers=6 decoder_layers=6
    encoder_attention_heads=8 decoder_attention_heads=8 encoder_ffn_dim=2048 decoder_ffn_dim=2048
    max_position_embeddings=512 activation_function=swish scale_embedding=True
bart-base: d_model=768 encoder_layers=6 decoder_layers=6 encoder_attention_heads=12 decoder_attention_heads=12
    encoder_ffn_dim=3072 decoder_ffn_dim=3072
nllb-200-distilled-600m: vocab_size=256206 encoder_layerdrop=0 decoder_layerdrop=0
pegasus-large: vocab_size=96103 encoder_layers=16 decoder_layers=16 activation_function=relu attention_dropout=0.1
    activation_dropout=0.1 scale_embedding=True
blenderbot-400m-distill: d_model=1280 decoder_layers=12 encoder_ffn_dim=5120 decoder_ffn_dim=5120 scale_embedding=True
t5-small: decoder_start_token_id=0
flan-t5-base: d_model=768 num_layers=12 num_heads=12 feed_forward_proj=gated-gelu tie_word_embeddings=False
    decoder_start_token_id=0
""")
PUBLISHED["exaone-4.0-1.2b"]["layer_types"] = ["full_attention"] * 30
