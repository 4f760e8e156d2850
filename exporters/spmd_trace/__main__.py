"""`python -m spmd_trace` is the command `spmd-trace`."""

import sys

from .command import main

sys.exit(main())
