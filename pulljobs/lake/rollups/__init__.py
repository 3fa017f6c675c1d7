"""Rollups: settlements counted from the lake by Spark and written to PostgreSQL for charts.

running     a run: new hours, then the days and months they belong to
hours       the hours that a run counts, and the files that hold them
counting    one pass of Spark over the settlements of hours, one over their messages
merging     hours into days, days into months
counts      the counts of one consumer in one period
rollup_rows their reads and writes
"""
