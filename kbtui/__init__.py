"""kbtui: a terminal cockpit that makes Triton kernels faster.

This module stays free of imports: a lane loads `kbtui` under the user's interpreter, where nothing of kbtui's own
dependencies need be installed.
"""

__version__ = "0.1.0"
