output "cluster_name" {
  description = "For aws eks update-kubeconfig --name."
  value       = module.eks.cluster_name
}

output "region" {
  description = "For aws eks update-kubeconfig --region."
  value       = module.eks.region
}

output "namespace" {
  description = "Where the chart is to be installed."
  value       = module.eks.namespace
}

output "image_repository" {
  description = "Where to push the image."
  value       = module.eks.image_repository
}

output "image_name" {
  description = "The repository's name in its registry."
  value       = module.eks.image_name
}

output "image_registry" {
  description = "Where docker logs in."
  value       = module.eks.image_registry
}

output "archive_bucket" {
  description = "The bucket for archives."
  value       = module.eks.archive_bucket
}

output "archive_role_arn" {
  description = "What the archive job's service account is annotated with."
  value       = module.eks.archive_role_arn
}

output "helm_values" {
  description = "For helm upgrade --install -f."
  value       = module.eks.helm_values
}
