"""The web console at `/ui`: pages made on the server from the broker's answers, served by any node.

Nothing is built, nothing is fetched from elsewhere, and nothing but dead letters can be changed.

Read `front` first, its routes; then `parts`, what all pages share, and a page: `topic_page` is the
shortest. `census` is where figures and rates come from, `browse` where messages do; `templates` and
`cells` turn them into HTML, `timeline` and `pauses` into pictures. `login`, `acting` and `forgery`
tell who may do what, and keep other sites from sending forms.
"""
