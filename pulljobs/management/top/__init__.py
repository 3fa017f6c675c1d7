"""The live view: how consumers, nodes and the upkeep stand, drawn anew every few seconds.

`frame` reads, by what the dashboard reads with; `content` is a frame as JSON, `shown` in words, and
`screen` draws it on a terminal until somebody quits.
"""
