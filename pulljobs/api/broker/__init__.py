"""The protocol of the reference broker: PascalCase JSON, errors in plain text."""
