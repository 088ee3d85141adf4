"""Causal language modelling: the task, its model and its data."""
