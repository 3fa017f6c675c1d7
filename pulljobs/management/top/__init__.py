"""Live view of consumers, nodes and problems, refreshed every few seconds.

`frame` reads the status with the functions of the dashboard. `json_content` renders a frame as
JSON, `tables` renders it as text and tables, and `screen` draws it on a terminal.
"""
