"""What clients may make this node hold: memory by kind and holder, and every other bound.

Read `memory` first: budgets, and what is charged to them. `lines` are those who wait for room in
one; `slices` are long jobs that take turns. `limits` are all bounds of the front with their
reasons.
"""
