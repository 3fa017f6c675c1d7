"""What the data pipeline moves a second, beside the same without it.

options      of the command line
history      an archive of so many rows
alone        ADBC without Spark, by processes of its own
bringing     the export
rolling      the rollup, beside a bare read and group by of the same files
publishing   the atomic publish, beside a raw COPY and INSERT ... SELECT
consuming    the streaming consumer, beside raw claims and finishes
memory       what the driver holds
session      the order of it all, and the targets
"""
