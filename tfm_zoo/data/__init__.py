"""Files and data sets of rows, those that are generated, and texts as windows of tokens."""
