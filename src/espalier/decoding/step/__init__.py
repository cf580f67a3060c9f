"""One step of decoding: from logits and a token mask to a token (`decide.py`), the record of the step (`record.py`),
and its candidate lists (`stages.py`). It knows no strategy and no model. The common step takes kernels (`row.py`,
`summed.py`), every other one `plain.py`.
"""
