"""Audio families and codecs; library code that the engines host."""
