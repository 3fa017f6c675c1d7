"""Rollups: settlements counted from the lake and written to PostgreSQL for charts.

By module, what it does:

    running     a run: new hours, then the days and months that they belong to
    hours       the hours that a run counts, and the files that have their rows
    counting    `Counter`: interface for counts of hours and merges of sketches
    spark_*     its implementation for many rows: Spark, in one pass over each table
    arrow_*     its implementation for fewer rows: the calling process, with Arrow and NumPy
    published   messages of each consumer, from the counts of its channel
    errors      fingerprints of errors, by which similar errors are counted together
    merging     hours into days, days into months
    counts      the counts of one consumer in one period
    rollup_rows reads and writes of the tables in PostgreSQL

A sketch is a small summary of many values, from which percentiles or the most frequent keys are
estimated. Sketches of the hours of a day can be merged into that of the day.
"""
