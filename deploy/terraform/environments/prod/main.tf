# Each zone stands by itself: its own NAT gateway and its own nodes. Data outlives a terraform destroy.

module "eks" {
  source = "../../modules/eks"

  name               = var.name
  kubernetes_version = var.kubernetes_version
  availability_zones = var.availability_zones
  api_public_cidrs   = var.api_public_cidrs
  admin_role_arns    = var.admin_role_arns

  single_nat_gateway  = false
  node_instance_types = var.node_instance_types
  nodes_per_zone      = var.nodes_per_zone

  destroy_data = false
}
