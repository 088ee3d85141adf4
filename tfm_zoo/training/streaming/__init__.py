"""Examples made from texts that are read while a model trains on them."""
