"""The `llm` generator: a model of any provider writes the next version. litellm is imported by `provider.py` alone, late."""
