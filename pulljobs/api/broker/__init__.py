"""Broker protocol: the HTTP API of the reference broker, for its existing clients.

Its JSON has names in PascalCase, and its errors are plain text.
"""
