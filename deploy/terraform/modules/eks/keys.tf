# Two keys: what the control plane keeps, and what the brokers and the archive keep.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition

  # Without it nobody could administer the key any more: IAM decides who of the account may.
  key_by_iam = {
    Sid       = "AccountByIam"
    Effect    = "Allow"
    Action    = "kms:*"
    Resource  = "*"
    Principal = { AWS = "arn:${local.partition}:iam::${local.account_id}:root" }
  }
}

resource "aws_kms_key" "cluster" {
  description             = "${var.name}: Kubernetes secrets and logs"
  enable_key_rotation     = true
  deletion_window_in_days = 30

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      local.key_by_iam,
      {
        Sid       = "Logs"
        Effect    = "Allow"
        Action    = ["kms:Encrypt*", "kms:Decrypt*", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"]
        Resource  = "*"
        Principal = { Service = "logs.${data.aws_region.current.name}.amazonaws.com" }
        Condition = {
          ArnLike = {
            "kms:EncryptionContext:aws:logs:arn" = [
              "arn:${local.partition}:logs:${data.aws_region.current.name}:${local.account_id}:log-group:/aws/eks/${var.name}/*",
              "arn:${local.partition}:logs:${data.aws_region.current.name}:${local.account_id}:log-group:/aws/vpc/${var.name}/*",
            ]
          }
        }
      },
    ]
  })
}

resource "aws_kms_alias" "cluster" {
  name          = "alias/${var.name}-cluster"
  target_key_id = aws_kms_key.cluster.key_id
}

resource "aws_kms_key" "data" {
  description             = "${var.name}: volumes, archive, images"
  enable_key_rotation     = true
  deletion_window_in_days = 30

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [local.key_by_iam]
  })
}

resource "aws_kms_alias" "data" {
  name          = "alias/${var.name}-data"
  target_key_id = aws_kms_key.data.key_id
}
