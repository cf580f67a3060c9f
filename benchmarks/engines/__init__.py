"""Engine measurements."""
