output "cluster_name" {
  description = "aws eks update-kubeconfig --name it."
  value       = aws_eks_cluster.this.name
}

output "cluster_endpoint" {
  description = "The Kubernetes API."
  value       = aws_eks_cluster.this.endpoint
}

output "region" {
  description = "Where all of it is."
  value       = data.aws_region.current.name
}

output "zones" {
  description = "The three zones."
  value       = local.zones
}

output "image_repository" {
  description = "Where to push the image, and where the nodes pull it from."
  value       = aws_ecr_repository.goqueue.repository_url
}

output "image_name" {
  description = "The repository's name in its registry."
  value       = aws_ecr_repository.goqueue.name
}

output "image_registry" {
  description = "Where docker logs in."
  value       = split("/", aws_ecr_repository.goqueue.repository_url)[0]
}

output "archive_bucket" {
  description = "The bucket for archives."
  value       = aws_s3_bucket.archive.bucket
}

output "archive_role_arn" {
  description = "What the archive job's service account is annotated with."
  value       = aws_iam_role.archive.arn
}

output "namespace" {
  description = "Where the chart is to be installed: the archive's role trusts this namespace."
  value       = var.namespace
}

output "helm_values" {
  description = "Values of the chart that are this cluster's, for helm -f."
  value = yamlencode({
    # no replicaCount: it is the chart's default, one node a zone, and whoever scales up must not be undone by an upgrade
    image = { repository = aws_ecr_repository.goqueue.repository_url }
    persistence = {
      createStorageClass = {
        enabled     = true
        name        = "goqueue-gp3"
        provisioner = "ebs.csi.aws.com"
        parameters = {
          type                        = "gp3"
          encrypted                   = "true"
          kmsKeyId                    = aws_kms_key.data.arn
          "csi.storage.k8s.io/fstype" = "ext4"
        }
        reclaimPolicy = var.destroy_data ? "Delete" : "Retain" # kept: a deleted claim is not a deleted broker
      }
    }
    archive = {
      destination    = "s3a://${aws_s3_bucket.archive.bucket}/archive"
      serviceAccount = { annotations = { "eks.amazonaws.com/role-arn" = aws_iam_role.archive.arn } }
    }
  })
}
