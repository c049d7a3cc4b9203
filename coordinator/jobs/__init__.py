"""Work that the cluster does by itself, for as long as it takes: schedules and redrives.

Read `schedule_times` (when one runs), `schedules` (what is published, how far each has come) and
`schedule_runs` (what one does now), in this order. `redrives` brings dead letters back.
"""
