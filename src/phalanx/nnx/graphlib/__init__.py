"""Graphs of objects: their structure, their traversal, and conversion to and from states."""
