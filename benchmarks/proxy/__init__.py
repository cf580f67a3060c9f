"""What `espalier proxy` costs in front of a llama-server: time per token, tokens per second, memory."""
