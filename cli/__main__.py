"""`python -m cli` is `ooc`."""

from cli import main

main()
