"""`python3 -m scripts.doctor`."""

import sys

from scripts.doctor.command_line import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
