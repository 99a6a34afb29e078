"""Contractions: `dot_general` with its precision settings, and its ragged and scaled forms."""
