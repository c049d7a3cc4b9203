"""Who may come in: API keys, sessions, certificates, and the audit log.

Begin with `auth_service` (the part that a node starts), then `key_checks` (proving a key, with
`proving_queue` before the slow part and `key_secrets` for the digests), `key_sessions` (sessions
of the console) and `key_admin` (keys made, rotated and revoked). `audit` keeps who did what,
`audit_sums` counts denials. `certificates` follows certificates on disk, `certificate_dates`
reads when they end.
"""
