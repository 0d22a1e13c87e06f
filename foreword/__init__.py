"""Foreword pretrains language models of every classic family on your own text."""

__version__ = "0.1.0"
