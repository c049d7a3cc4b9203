"""What is remembered so that nothing is stored twice or done twice.

A batch is known by its producer's sequence (`producers`), by the id of its request (`requests`), or
row by row by message ids (`message_ids`); `repeats` finds the rows that are repeated. `flights` are
batches that a leader has admitted and not applied yet. `results` answer repeated operations.
"""
