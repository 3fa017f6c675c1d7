"""Dashboard: one page of the admin site that shows the state of all jobs, and its problems first.

`page` has the view. Each section of the page has a module that reads its rows and formats texts.
The number of rows read is bounded, however large the tables are. `charts` draws.
"""
