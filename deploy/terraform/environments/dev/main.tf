# Small and to be thrown away: one NAT gateway, burstable nodes, and destroy takes all data along.

module "eks" {
  source = "../../modules/eks"

  name               = var.name
  kubernetes_version = var.kubernetes_version
  availability_zones = var.availability_zones
  api_public_cidrs   = var.api_public_cidrs
  admin_role_arns    = var.admin_role_arns

  single_nat_gateway  = true
  node_instance_types = ["t3.large"]
  nodes_per_zone      = { min = 1, desired = 1, max = 2 }

  archive_expire_days = 120
  destroy_data        = true
}
