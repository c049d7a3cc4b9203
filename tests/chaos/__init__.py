"""Real processes, killed for real, under load; judged by what they say over HTTP."""
