# Where the archive job of the pipeline writes. The cluster itself never reads from here.

resource "aws_s3_bucket" "archive" {
  # checkov:skip=CKV_AWS_144: The brokers hold three copies in three zones, S3 keeps the archive in three more; a second region is the owner's decision
  # checkov:skip=CKV_AWS_18: An access log needs a bucket of its own that logs nowhere; CloudTrail's data events tell the same, for the whole account
  # checkov:skip=CKV2_AWS_62: Nothing listens for new files; the manifest tells readers what there is
  bucket        = "${var.name}-archive-${local.account_id}"
  force_destroy = var.destroy_data
}

resource "aws_s3_bucket_ownership_controls" "archive" {
  bucket = aws_s3_bucket.archive.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "archive" {
  bucket = aws_s3_bucket.archive.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_versioning" "archive" {
  bucket = aws_s3_bucket.archive.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "archive" {
  bucket = aws_s3_bucket.archive.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.data.arn
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "archive" {
  bucket = aws_s3_bucket.archive.id

  rule {
    id     = "leftovers"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }

    noncurrent_version_expiration {
      noncurrent_days = 30
    }
  }

  rule {
    id     = "age"
    status = "Enabled"

    filter {}

    transition {
      days          = var.archive_cold_days
      storage_class = "GLACIER_IR"
    }

    dynamic "expiration" {
      for_each = var.archive_expire_days > 0 ? [var.archive_expire_days] : []

      content {
        days = expiration.value
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.archive]
}

resource "aws_s3_bucket_policy" "archive" {
  bucket = aws_s3_bucket.archive.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyByTls"
      Effect    = "Deny"
      Action    = "s3:*"
      Principal = "*"
      Resource  = [aws_s3_bucket.archive.arn, "${aws_s3_bucket.archive.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.archive]
}

resource "aws_iam_role" "archive" {
  name_prefix        = "${substr(var.name, 0, 20)}-archive-"
  assume_role_policy = local.trust.archive
}

resource "aws_iam_role_policy" "archive" {
  name = "archive"
  role = aws_iam_role.archive.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
        Resource = [aws_s3_bucket.archive.arn]
      },
      {
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
        Resource = ["${aws_s3_bucket.archive.arn}/*"]
      },
      {
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource = [aws_kms_key.data.arn]
      },
    ]
  })
}
