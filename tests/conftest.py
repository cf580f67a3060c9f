"""Settings of hypothesis: no deadlines (a busy machine is no fault), and the same examples each time in CI."""

import os

from hypothesis import settings

settings.register_profile("espalier", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "espalier")
