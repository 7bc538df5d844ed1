"""Finished runs as one HTML file, or as figures for papers."""
