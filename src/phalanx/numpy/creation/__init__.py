"""Array creation: from data, constants, ranges, grids, windows and files."""
