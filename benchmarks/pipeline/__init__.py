"""Rows a second of the data pipeline, compared with the same work without it.

history   an archive of a given size
adbc      rows read by ADBC alone
export    the export, compared with ADBC alone
rollup    the rollup, compared with a bare read and group by of the same files
publish   the atomic publish, compared with a raw COPY and INSERT ... SELECT
consume   the streaming consumer, compared with raw claims and finishes
memory    memory of the driver
session   all measures for each number of rows, and the missed targets

small_files      exports of one row, then compact and vacuum
quiet_times      cold commands of the lake, for few jobs
cluster_faults   a standalone cluster whose processes are killed
"""
