"""The cockpit: a viewer of runs that never owns one.

Textual reads these settings once, when it is imported; this package is imported first, so here is the one place to set
them. Whoever set them in the environment keeps their own.
"""

import os

# A key waits for the next frame: at 30 a second that was most of the time to its paint (p95 43 ms, at 120 it is 18). What a
# run paints by itself is gathered twice a second and bounded in bytes (pace.py), however many frames there could be.
os.environ.setdefault("TEXTUAL_FPS", "120")
# An animation is bytes over SSH and nothing else.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
