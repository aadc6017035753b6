"""HTTP and WebSocket: protocol adapters, the guard, and `turbospark serve`."""
