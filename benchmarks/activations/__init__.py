"""What captured hidden states cost: generating, writing, rebuilding inference files."""
