"""The dashboard: one page of the admin site that tells how jobs fare, and where to look.

`page` is the view; each part of the page has a module that reads what it shows, bounded whatever
the tables hold, and words it; `charts` draws.
"""
