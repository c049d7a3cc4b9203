"""The Spark format `goqueue.events`: what happened to messages, in batches and as streams."""
