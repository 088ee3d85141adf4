"""A Hub for tests, which serves models to the real `huggingface_hub` client (through `HF_ENDPOINT`).

`protocol.py` is what a client can ask for, `store.py` what is kept, `metadata.py` what a card may say, `serving.py` the
HTTP, where each thing can be told to fail. Data sets, Spaces, pull requests, uploads in parts and Xet storage are not
served, and a client that asks for them is refused.
"""

from .protocol import HubServer

__all__ = ["HubServer"]
