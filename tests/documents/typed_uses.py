"""Uses of the public names that a type checker reads, and nobody runs: `test_package.py`. Where a mark says that there
is an error, it is one to find nothing."""

from pathlib import Path

from transformers import PreTrainedModel
from typing_extensions import assert_type

import tfm_zoo
from tfm_zoo.converters import ConversionError, Rename, from_state_dict
from tfm_zoo.visualization import attention_maps, plot_attention

config = tfm_zoo.TfmBertConfig(norm_position="pre", mlp_type="gated")
tfm_zoo.TfmBertConfig(norm_positoin="pre")  # type: ignore[call-arg]
assert_type(config.hidden_size, int)
model = tfm_zoo.TfmBertForSequenceClassification(config)
base: PreTrainedModel = tfm_zoo.from_official("google-bert/bert-base-uncased", tfm_zoo.TfmBertModel, num_labels=2)
assert_type(tfm_zoo.named_config("gpt2-medium", norm_type="rmsnorm"), tfm_zoo.TfmConfig)
written: Path = tfm_zoo.record(model, "my-model")
packed = tfm_zoo.pack_weights(tfm_zoo.TfmGPTForCausalLM(tfm_zoo.TfmGPTConfig()), "int8")
mine = from_state_dict({}, [Rename("a", "b")], tfm_zoo.TfmGPTModel, tfm_zoo.TfmGPTConfig())
plot_attention(attention_maps(model, input_ids=None)["encoder"], "attention.png", layer=1)
plot_attention(attention_maps(model, input_ids=None)["encoder"], "attention.png", layer="first")  # type: ignore[arg-type]
wrong: int = tfm_zoo.from_official("google-bert/bert-base-uncased")  # type: ignore[assignment]
try:
    tfm_zoo.to_official(model)
except ConversionError as error:
    print(error)
