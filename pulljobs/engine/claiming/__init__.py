"""Claims by SQL statements on a `Session`: a connection of Django, or one of a Spark stream."""
