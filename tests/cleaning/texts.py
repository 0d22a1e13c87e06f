"""Prose that no step drops, and what is planted in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

WORDS = """river town bridge garden teacher letter window market winter village doctor morning
forest station island kitchen painter harbour mountain library captain engine orchard summer
neighbour festival museum crossed watched painted followed remembered visited found described
built left old quiet narrow bright distant wooden empty famous gentle heavy silver late"""
COMMON = "the of and that with to a in was for"
KOREAN = """강과 마을이 오래된 다리에 대하여 이야기한다 사람들은 아침마다 시장에서 채소와
생선을 사고 이웃과 겨울이 오면 산에는 눈이 쌓이고 아이들은 밖에서 놀다가 학교로
돌아가 선생님의 편지를 읽는다"""


def prose(seed: int, sentences: int = 12) -> str:
    """Return a document of words as frequent as in English, another for each seed."""
    draw = random.Random(seed)
    common, words = COMMON.split(), WORDS.split()
    lines = []
    for _ in range(sentences):
        drawn = [draw.choice(words if draw.random() < 0.6 else common) for _ in range(12)]
        lines.append(f"{' '.join(drawn).capitalize()}.")
    return "\n".join(" ".join(lines[n : n + 3]) for n in range(0, sentences, 3))


def korean(seed: int) -> str:
    """Return a document in Korean, another for each seed."""
    draw = random.Random(seed)
    return " ".join(f"{' '.join(draw.choices(KOREAN.split(), k=9))}." for _ in range(8))


def near(text: str) -> str:
    """Return a text with one word changed."""
    words = text.split(" ")
    words[len(words) // 2] = "changed"
    return " ".join(words)


def write(file: Path, texts: Iterable[str]) -> Path:
    """Write texts as JSON lines."""
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return file
