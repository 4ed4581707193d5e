"""A run on paper: what the cockpit shows of it, as a page that can be sent to somebody. Made from a run's state alone."""
