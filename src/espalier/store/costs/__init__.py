"""What constraints cost over time: sums by constraint and path, for every hour, of the answers whose traces are stored.

`answer.py` says what one answer adds, `adding.py` adds it in the transaction that stores its trace, `tables.py` has the
tables, and `rows.py` reads them for a window of time. `report.py` turns what was read into rows for people: means,
intervals, changes. The sums stay when traces are deleted. It knows neither engines nor HTTP. Start with `answer.py`.
"""
