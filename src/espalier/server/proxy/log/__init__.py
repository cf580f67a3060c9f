"""Log mode: each reply that passes with its rejections in the log of a patched llama-server. `mode.py` serves requests,
`window.py` follows the log, `linking.py` decides which task is whose. It knows no grammar and no sampler."""
