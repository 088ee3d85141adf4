"""Published models: what `config.json` has beside the defaults of the official configuration."""

from .fields import fields_by_name

DEFAULTS = """
bert-base distilbert-base electra-small xlm-roberta-xl modernbert-base nomic-embed-text-v1.5 gte-multilingual-base
jina-embeddings-v3 gpt2 clip-vit-base-patch32-text smollm3-3b gpt-j-6b opt-125m
"""
#: name -> fields
PUBLISHED = {name: {} for name in DEFAULTS.split()} | fields_by_name("""
roberta-base: vocab_size=50265 max_position_embeddings=514 type_vocab_size=1 layer_norm_eps=1e-5
albert-base-v2: hidden_size=768 num_attention_heads=12 intermediate_size=3072
mpnet-base: max_position_embeddings=514 layer_norm_eps=1e-5
eurobert-210m: rope_parameters={'rope_type':'default','rope_theta':250000.0}
smollm-135m: vocab_size=49152 hidden_size=576 num_hidden_layers=30 num_attention_heads=9 num_key_value_heads=3
    intermediate_size=1536 rms_norm_eps=1e-5 tie_word_embeddings=True
qwen3-0.6b: hidden_size=1024 num_hidden_layers=28 num_attention_heads=16 num_key_value_heads=8 intermediate_size=3072
    max_position_embeddings=40960 rope_parameters={'rope_type':'default','rope_theta':1000000.0}
    tie_word_embeddings=True bos_token_id=151643 eos_token_id=151645
gemma-3-270m: vocab_size=262144 hidden_size=640 intermediate_size=2048 num_hidden_layers=18 num_attention_heads=4
    num_key_value_heads=1 max_position_embeddings=32768 sliding_window=512
embeddinggemma-300m: vocab_size=262144 hidden_size=768 intermediate_size=1152 num_hidden_layers=24 num_attention_heads=3
    num_key_value_heads=1 max_position_embeddings=2048 sliding_window=512 use_bidirectional_attention=True
DEBERTA: relative_attention=True position_buckets=256 norm_rel_ebd=layer_norm share_att_key=True
    pos_att_type=p2c|c2p position_biased_input=False
deberta-v3-base: DEBERTA hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072
deberta-v2-xlarge: DEBERTA attention_head_size=64 conv_kernel_size=3 conv_act=gelu
deberta-base: relative_attention=True pos_att_type=c2p|p2c position_biased_input=False
pythia-160m: vocab_size=50304 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072
    eos_token_id=0
opt-350m: hidden_size=1024 num_hidden_layers=24 ffn_dim=4096 num_attention_heads=16 word_embed_proj_dim=512
    do_layer_norm_before=False
bloom-560m: hidden_size=1024 n_layer=24 n_head=16
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
