"""Files and texts of others, read within limits: `limits.py` is the table of readers, `reading.py` opens and reads,
`json_shape.py` looks at JSON before it is parsed. It knows no format but JSON. Start with `limits.py`.
"""
