"""Command `pulljobs top`: live view of consumers, nodes and problems.

A frame is the status at one time. `frame` reads it every few seconds, with the functions of the
dashboard. `json_content` renders it as JSON, `tables` renders it as text and tables, and `screen`
draws it on a terminal.
"""
