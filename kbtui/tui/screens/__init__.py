"""The screens: each puts panes together and carries out the actions of its place."""
