"""What two victims notice while each of many attacks runs against the same server: `python -m benchmarks.hostile`.

`attacks.py` is the table of attacks, `victims.py` measures, `report.py` runs and prints.
"""
