"""Rollups: settlements counted from the lake and written to PostgreSQL for charts.

running     a run: new hours, then the days and months they belong to
hours       the hours that a run counts, and the files that hold them
counting    `Counter`: what counts hours and merges sketches
spark_*     the counter for many rows: Spark, in one pass over each table
arrow_*     the counter for few rows: this process, with Arrow
published   messages of each consumer, from the counts of its channel
errors      shapes and fingerprints of errors
merging     hours into days, days into months
counts      the counts of one consumer in one period
rollup_rows their reads and writes
"""
