"""Entry of `python -m pulljobs.client`, the command line of the client."""

import sys

from pulljobs.client.commands import main

sys.exit(main(sys.argv[1:]))
