"""What each pane says, as lines of spans with roles: pure functions of a run's state, without Textual."""
