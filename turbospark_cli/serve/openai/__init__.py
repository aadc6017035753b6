"""The OpenAI protocol."""
