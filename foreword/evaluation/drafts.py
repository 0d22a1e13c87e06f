"""Guesses of the next tokens of a text from what it repeats, which the model then verifies.

Reading a few tokens costs a small model little more than reading one, since most of the time goes
into reading its weights. So where the last tokens of a text occurred before, those that followed
then are read along with the next one, and kept as far as they are what the model chooses. The text
is the same as without guesses (Leviathan et al. 2023; the guesses are those of Saxena 2023, prompt
lookup decoding).
"""

from __future__ import annotations

from collections.abc import Sequence

CONTEXTS = (3, 2)  # numbers of last tokens to look up, the first that occurred counts
FIRST = 2  # guesses at first, and after a wrong one


class Drafts:
    """The guesses for one text.

    Args:
        ids: the text so far, source included.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where the text goes on after these tokens
        self._before: list[int] = []  # of each context of the last tokens: the same, earlier
        self._most = FIRST
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Add tokens to the text."""
        for token in ids:
            self._ids.append(token)
            end = len(self._ids)
            contexts = [tuple(self._ids[end - n :]) for n in CONTEXTS if n <= end]
            self._before = [self._after[context] for context in contexts if context in self._after]
            self._after.update(dict.fromkeys(contexts, end))

    def guess(self, most: int) -> list[int]:
        """Return at most `most` guesses of the next tokens."""
        if not self._before or most < 1:
            return []
        start, count = self._before[0], min(most, self._most)
        guessed = self._ids[start : start + count]
        # A text that repeats its last tokens goes on repeating them.
        period = self._ids[start:]
        while len(guessed) < count:
            guessed = guessed + period[: count - len(guessed)]
        return guessed

    def verified(self, guesses: int, right: int) -> None:
        """Adapt the number of guesses: doubled if all were right, few after a wrong one."""
        if guesses:
            self._most = 2 * self._most if right == guesses else max(FIRST, right)
