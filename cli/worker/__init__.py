"""`goqueue-cli worker`: runs the tasks of an app, a line a task.

`command` is the verb; `metrics` counts what was done and answers Prometheus; `watching` starts the
worker anew when its source has changed.
"""
