"""The report of a run: one HTML page that needs no network.

page.py        assembles the sections of a run into one page
training.py    section of every run: learning curves of its metrics
topics.py      section of a topic model; its charts are in topic_charts.py
comparison.py  section of a topic model: prevalence of topics by group
factors.py     section of a matrix factorization
regression.py  section of a Lasso, or an l1 logistic or Poisson regression
softmax.py     section of a multi-class linear model
charts.py      building blocks of Vega-Lite specifications
templates/     HTML, style and scripts of the page and of each section
"""
