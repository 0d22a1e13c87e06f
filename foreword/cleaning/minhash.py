"""MinHash signatures of documents of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

from foreword.types import Array

AT_ONCE = 8192  # sequences whose hashes are held in memory


class Signatures(MinhashDedupSignature):  # type: ignore[misc]
    """datatrove's signatures, computed in pieces: a book takes no more memory than a page."""

    def get_signature(self, shingles: Array) -> Any:
        """Return the hashes of each bucket, from the hashes of all sequences (sequences, 1)."""
        pieces = [
            super(Signatures, self).get_signature(shingles[start : start + AT_ONCE])
            for start in range(0, len(shingles), AT_ONCE)
        ]
        return pieces[0] if len(pieces) == 1 else np.min(np.array(pieces), axis=0).tolist()
