"""`python -m pulljobs.client`: consume, publish, fetch and inspect from a shell."""

import sys

from pulljobs.client.commands import main

sys.exit(main(sys.argv[1:]))
