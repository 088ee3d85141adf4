"""A Hub for tests, which serves models to the real `huggingface_hub` client (through `HF_ENDPOINT`).

`protocol.py` is what a client can ask for, and lets each request fail that a test names; `store.py` is what is kept;
`metadata.py` is what a card may say. Data sets, Spaces, pull requests and storage of large files are not served: every
file comes with its commit.
"""

from .protocol import HubServer

__all__ = ["HubServer"]
