"""Array types, and the codes of labels and verdicts in arrays."""

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

LABELS = ("true", "false", "unjudgeable")
TRUE, FALSE, UNJUDGEABLE = range(3)
VERDICTS = ("accepted", "rejected", "undecided", "incomplete")
ACCEPTED, REJECTED, UNDECIDED, INCOMPLETE = range(4)
