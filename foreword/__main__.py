"""`python -m foreword` is `foreword`."""

from foreword.cli.main import main

main()
