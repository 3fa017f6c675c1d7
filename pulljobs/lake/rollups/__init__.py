"""Rollups: what became of jobs, counted from the lake by Spark and written back for charts.

running     what is new, hour by hour, then the days and months they belong to
hours       the hours that a run counts, and the files that hold them
counting    one pass of Spark over the settlements of hours, one over their messages
merging     hours into days, days into months
counts      what is counted of one consumer in one period
storing     the rows
"""
