"""Architectures side by side: their training under one budget, the models, what they cost, and the report."""
