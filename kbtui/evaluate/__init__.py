"""Evaluation: is a candidate right, and how fast is it.

The run process's side is `lane` (and what it imports); `inlane/` runs inside a lane under the user's interpreter and
imports the standard library,
torch and triton only. This module imports nothing, so that both sides can load it.
"""
