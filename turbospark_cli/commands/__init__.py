"""Commands that have no package of their own."""
