"""What the command line and Python programs both call: run a recipe, open a model, measure it, ask it."""
