"""`python -m ooc` is `ooc`."""

from ooc.cli import main

main()
