"""What `manage.py pulljobs lake` can do: every module here is a verb of its name.

A module's docstring is its help. `add_arguments(parser)` is optional; `handle(**options)` does it
and returns an `Answer`. Common to all are `--json`, `--master` and repeated `--conf NAME=VALUE`,
the last two for `pulljobs.spark.session.opened`. Modules load Spark only when they are run, for
the parser loads them all.
"""
