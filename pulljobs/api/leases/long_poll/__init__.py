"""Pulls that wait for jobs: any number of them in a process, on a handful of connections.

A request hands its `Pull` to the process's `WaitingRoom` and awaits the answer, whatever event loop
or thread it runs on. The room has a thread with an event loop of its own: one LISTEN connection,
one `Line` a consumer, which registers, claims for its pulls in turn and deals the jobs out, and a
few `DatabaseThreads` that run the statements.
"""
