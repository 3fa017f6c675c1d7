"""SQL statements of schedules. Importing this package lets `engine.sql` find them by name."""

from pulljobs.engine.sql import add_package

add_package(__name__)
