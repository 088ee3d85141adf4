"""What many tests of conversion begin with: a tiny official model, and a folder that it was saved to."""

import pytest

from tests.official_models import BY_NAME, build_tiny


@pytest.fixture(scope="session")
def original():
    """A BERT with the head for masked language modelling, which no test changes."""
    return build_tiny(BY_NAME["BertForMaskedLM"])


@pytest.fixture
def folder(original, tmp_path):
    original.save_pretrained(tmp_path)
    return tmp_path
