"""The pictures of the book, each drawn by the code that its chapter explains.

A function returns an `<svg>` in the colours of the page; `{picture} NAME` shows it. They train
nothing that takes longer than a second, and draw the same each time.
"""
