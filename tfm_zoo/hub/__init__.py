"""What surrounds a checkpoint on the Hub."""
