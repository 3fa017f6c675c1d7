"""Lease protocol: the HTTP API to pull many jobs at once, with long polls, to ack and to renew.

Its errors are application/problem+json.
"""
