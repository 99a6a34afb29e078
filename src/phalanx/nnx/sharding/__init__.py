"""Shardings of variables from metadata, and rules from logical axes to mesh axes."""
