"""The worker: a supervisor and its child, in which loops claim, run, flush and reap."""
