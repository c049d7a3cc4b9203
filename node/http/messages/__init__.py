"""Publishing messages, and reading them by offset, time or id.

Publishing: `publish`, from there `rows`, `columns` and `fields`, which turn JSON into what is
stored, `sharing`, by which small ones go together, and `results`, which answers. `batches` are
record batches, in and out as they are stored; `producers` are identities by which a retry is known;
`any_object` is what load tools publish.
Reading: `read`, then `visible`, and `render`, by which all messages are shown.
`trace_context` and `request_spans` tell those who export spans.
"""
