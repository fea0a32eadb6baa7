"""Export models to other programs, and import models from other programs."""
