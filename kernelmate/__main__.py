"""`python -m kernelmate`: the command line without its script."""

import sys

from kernelmate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
