"""What writes candidate source: `rewrite` (libcst), `llm`, `replay`, `inject`."""
