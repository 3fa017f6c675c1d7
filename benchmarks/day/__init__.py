"""Growth of tables, indexes and processes over a day of jobs in fast motion.

settings     settings of all processes, with a retention
clock        days that pass when the benchmark lets them
publishing   processes that publish as many jobs as they are allowed
sizes        sizes of tables, indexes and processes
session      hours of jobs, each on another day of the clock, and the growth of the sizes
"""
