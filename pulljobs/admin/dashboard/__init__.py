"""Dashboard: one page of the admin site that shows the state of all jobs, and its problems first.

`page` is the view. Each part of the page has a module that reads its rows and writes its texts. The
reads are bounded, however large the tables are. `charts` draws.
"""
