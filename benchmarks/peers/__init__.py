"""Comparison of pulljobs with other queues on PostgreSQL, described in docs/peers.md."""
