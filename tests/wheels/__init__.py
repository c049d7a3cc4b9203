"""The distributions as users get them: wheels in an environment of their own, where `log` and
`node` are names of the user's."""
