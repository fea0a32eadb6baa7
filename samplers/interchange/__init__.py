"""Export models to other programs, and import models of other programs."""
