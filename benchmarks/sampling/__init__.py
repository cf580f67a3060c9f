"""Sampling measurements."""
