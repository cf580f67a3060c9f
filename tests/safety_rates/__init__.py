"""How often the safety filter catches what it should and spares what it should: tables of texts with their sources
(`tables/`), and ordinary text collected from what is installed here (`collected.py`). Start with `report.py`.

The tables were written before the patterns they measure, and not from them.
"""
