"""HTTP/2 with bodies that go both ways at once: miniqueue's API, by the `h2` library.

Read `bounds` and `frame_checks` (what a connection may send), `multiplexer` (its frames, without a
socket), `exchange` and `connection` (requests and answers on a socket), then `heads`, `commands`,
`publishing` and `subscription` (what is asked), and `listener`, which wires them.
"""
