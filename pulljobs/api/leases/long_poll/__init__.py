"""Long polls: any number of pulls wait in a process, with a few database connections.

A request hands its `PendingPull` to the `Waiters` of the process and awaits the answer, on any
event loop or thread. The waiters have a thread with an event loop of their own. On it are a
connection with LISTEN, and a `WaiterQueue` for each consumer. The queue writes a `WaiterRow`, by
which publishers know that they must notify this process, claims for its pulls in turn, and
distributes the jobs. A few `DatabaseThreads` run the statements.
"""
