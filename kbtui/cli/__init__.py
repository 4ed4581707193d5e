"""The command line: parse, call, print. One file per group of commands; whatever is slow to import is imported inside them."""
