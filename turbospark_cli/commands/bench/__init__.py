"""`turbospark bench`: a model in this process, or any OpenAI-compatible server."""
