"""gRPC: the services of `goqueue.v1` over the node's broker, by grpcio's own asyncio server.

grpcio listens, speaks HTTP/2 and TLS, and keeps its threads out of the interpreter; every call
then goes through `listeners.requests`, as a command of any other protocol does.

Read `methods` first: what there is to call. `server` listens and brings each call through its key,
its policy and its end; `call` is one of them, `failures` how errors are told. Then the services:
`publish` and `publish_stream` (`rows`: a message as it is stored), `consume`, `subscribe`
(`messages`: stored ones as they are shown), `settle`, `offsets`, `health`, `reflection`. `protocol`
holds the .proto, and what is generated of it.

Nothing imports this room unless the listener is on: grpcio is an extra.
"""
