"""Stub until the metrics branch lands."""

import torch


class Metrics:
    def compute(self, predictions, references):
        predictions, references = torch.as_tensor(predictions), torch.as_tensor(references)
        correct = predictions == references
        classes = torch.cat([predictions, references]).unique()
        tp = torch.stack([(correct & (references == c)).sum() for c in classes]).double()
        occ = torch.stack([(predictions == c).sum() + (references == c).sum() for c in classes])
        return {"accuracy": correct.double().mean().item(), "f1": (2 * tp / occ).mean().item()}


def load_metrics(names, trust_remote_code=False):
    return Metrics()


def result_names(metrics, predictions, references):
    return ["accuracy", "f1"]
