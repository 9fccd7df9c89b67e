"""`python -m fewtags`, also for torchrun."""

from fewtags.cli import main

main()
