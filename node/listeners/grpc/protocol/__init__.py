"""The messages of `goqueue.v1`: goqueue.proto is ours, goqueue_pb2 is generated (`make protos`)."""
