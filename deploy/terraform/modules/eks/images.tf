resource "aws_ecr_repository" "goqueue" {
  name                 = "${var.name}/goqueue"
  image_tag_mutability = "IMMUTABLE"
  force_delete         = var.destroy_data

  encryption_configuration {
    encryption_type = "KMS"
    kms_key         = aws_kms_key.data.arn
  }

  image_scanning_configuration {
    scan_on_push = true
  }
}
