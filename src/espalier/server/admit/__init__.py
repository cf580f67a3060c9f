"""Who may ask, how often, and how many at once: keys, rate limits, the gate."""
