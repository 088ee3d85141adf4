"""A Hub for tests: `protocol.py` is what travels over HTTP, `store.py` what is kept, `metadata.py` what a card may say.

It serves models to the real `huggingface_hub` client, which finds it through `HF_ENDPOINT`. It has no datasets, Spaces,
pull requests, multi-part uploads or Xet storage, and says so to a client that asks for them.
"""

from .protocol import HubServer
from .store import File, Repository

__all__ = ["File", "HubServer", "Repository"]
