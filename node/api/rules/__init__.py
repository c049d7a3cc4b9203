"""Who may call a method of the broker: each is declared together with its rule.

Read `rule` first: `scoped` puts a rule on a method's declaration, `rules_of` finds those of a
Protocol and refuses one that has a method without. `scope` is what a key reaches, which rules judge
by; `groups` has the rules that several methods about groups share. A rule that only one method has
stands beside its declaration in `node.api`.
"""
