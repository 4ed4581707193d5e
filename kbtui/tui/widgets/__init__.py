"""Widgets that paint lines and only the lines that changed."""
