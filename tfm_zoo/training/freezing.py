"""Freezing a pre-trained body while its new head settles."""

from transformers import PreTrainedModel


def freeze_base_model(model: PreTrainedModel, frozen: bool = True) -> None:
    """Freeze the model's body, so that only its head learns; `frozen=False` lets everything learn again.

    The pooler stays trainable: it is part of the base model by name, but it serves the head, and in RoBERTa and
    DistilBERT checkpoints it is as new as the classifier.
    """
    for name, parameter in model.base_model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith("pooler."))
