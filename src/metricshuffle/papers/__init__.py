"""Published formulas as published, wrong ones included; none of them can become a guarantee.

A folder a paper: its formulas, the numbers it prints (values.json), and what `metricshuffle reproduce` compares (items).
"""
