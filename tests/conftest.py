"""Settings for every test: no network, one thread a worker (pytest-xdist runs one worker a core)."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
