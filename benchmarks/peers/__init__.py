"""pulljobs beside other queues on PostgreSQL, on one server, in one run: see docs/peers.md."""
