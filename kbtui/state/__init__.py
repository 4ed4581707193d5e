"""What happened in a run and what follows from it: records, events, commands and the fold. Pure; msgspec and nothing
heavier."""
