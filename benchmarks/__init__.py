"""Measurements, side by side with the peer in the same run, reported as ratios. Nothing here is asserted by a test."""
