"""The report of a run: one HTML page that needs no network.

page.py      puts the sections of a run together
training.py  the section of every run: its metrics, as curves
topics.py    that of a topic model, whose charts are in topic_charts.py
factors.py   that of a factorization
charts.py    charts as Vega-Lite says them, for the Vega that is within the page
templates/   the page and its sections, style and scripts
"""
