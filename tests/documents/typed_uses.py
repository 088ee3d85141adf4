"""Uses of public names that a type checker reads, and nobody runs. Where a mark says so, it is to find an error."""

from pathlib import Path

from transformers import PreTrainedModel
from typing_extensions import assert_type

import tfm_zoo
from tfm_zoo.converters import Rename, from_state_dict
from tfm_zoo.visualization import attention_maps, plot_attention

config = tfm_zoo.TfmBertConfig(norm_position="pre", mlp_type="gated")
tfm_zoo.TfmBertConfig(norm_positoin="pre")  # type: ignore[call-arg]
assert_type(config.hidden_size, int)
model = tfm_zoo.TfmBertForSequenceClassification(config)
base: PreTrainedModel = tfm_zoo.from_official("google-bert/bert-base-uncased", tfm_zoo.TfmBertModel, num_labels=2)
wrong: int = tfm_zoo.from_official("google-bert/bert-base-uncased")  # type: ignore[assignment]
assert_type(tfm_zoo.named_config("gpt2-medium", norm_type="rmsnorm"), tfm_zoo.TfmConfig)
written: Path = tfm_zoo.record(model, "my-model")
packed = tfm_zoo.pack_weights(tfm_zoo.TfmGPTForCausalLM(tfm_zoo.TfmGPTConfig()), "int8")
mine = from_state_dict({}, [Rename("a", "b")], tfm_zoo.TfmGPTModel, tfm_zoo.TfmGPTConfig())
plot_attention(attention_maps(model, input_ids=None)["encoder"], "attention.png", layer="first")  # type: ignore[arg-type]
