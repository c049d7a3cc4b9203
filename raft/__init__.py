"""Raft groups on PySyncObj: hardened elections and replication over our own log and peer link."""
