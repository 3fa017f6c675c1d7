"""`python -m pulljobs.client`: a worker, a producer and a look at a consumer, from a shell."""

import sys

from pulljobs.client.commands import main

sys.exit(main(sys.argv[1:]))
