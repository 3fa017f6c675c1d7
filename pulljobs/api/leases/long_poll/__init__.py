"""Long poll: any number of pulls wait in a process, on a few database connections.

A request hands its `PendingPull` to the `Waiters` of the process and awaits the answer, on any
event loop or thread. The waiters have a thread with an event loop of its own. It runs one LISTEN
connection and one `WaiterQueue` a consumer, which registers, claims for its pulls in turn and
distributes the jobs, and a few `DatabaseThreads` run the statements.
"""
