"""A day of jobs in fast motion: does anything grow?

options      of the command line
settings     of all its processes: how long history is kept
clock        days that pass when the benchmark says so
publishing   processes that publish what they may, and no more
looking      what tables, indexes and processes take
session      the order of it all, and the verdict
"""
