"""The Textual cockpit."""
