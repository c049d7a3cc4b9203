"""deploy/terraform, executed as far as a machine without an AWS account can."""
