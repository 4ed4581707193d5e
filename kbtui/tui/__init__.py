"""The cockpit: a viewer of runs that never owns one.

Textual reads these settings once, when it is imported; this package is imported first, so here is the one place to set
them. Whoever set them in the environment keeps their own.
"""

import os

# Changes are gathered and painted twice a second; 60 frames per second would only send the same cells more often.
os.environ.setdefault("TEXTUAL_FPS", "30")
# An animation is bytes over SSH and nothing else.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
