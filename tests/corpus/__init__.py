"""A corpus is read through an encoder: each text once, in order, and nothing is lost."""
