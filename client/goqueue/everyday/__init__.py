"""One way in for a directory, a server and a cluster; and the queue for every day.

Read `opening` first: `goqueue.open`; `targets` reads what it is to open. `queue` is
`goqueue.Queue`, `items` what is put into one, and `lease` keeps what a stream works on.
"""
