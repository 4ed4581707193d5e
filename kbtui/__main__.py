"""`python -m kbtui` is `kbtui`."""

import sys

from kbtui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
