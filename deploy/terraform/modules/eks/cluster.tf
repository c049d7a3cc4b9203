resource "aws_cloudwatch_log_group" "cluster" {
  name              = "/aws/eks/${var.name}/cluster" # the name EKS writes to; made here, it has a retention and a key
  retention_in_days = var.log_retention_days
  kms_key_id        = aws_kms_key.cluster.arn
}

resource "aws_eks_cluster" "this" {
  name     = var.name
  version  = var.kubernetes_version
  role_arn = aws_iam_role.cluster.arn

  enabled_cluster_log_types = ["api", "audit", "authenticator", "controllerManager", "scheduler"]

  vpc_config {
    subnet_ids              = [for zone in local.zones : aws_subnet.private[zone].id]
    endpoint_private_access = true
    endpoint_public_access  = length(var.api_public_cidrs) > 0
    public_access_cidrs     = length(var.api_public_cidrs) > 0 ? var.api_public_cidrs : null
  }

  encryption_config {
    resources = ["secrets"]

    provider {
      key_arn = aws_kms_key.cluster.arn
    }
  }

  access_config {
    authentication_mode                         = "API"
    bootstrap_cluster_creator_admin_permissions = true
  }

  depends_on = [
    aws_cloudwatch_log_group.cluster,
    aws_iam_role_policy_attachment.cluster,
  ]
}

resource "aws_iam_role" "cluster" {
  name_prefix = "${substr(var.name, 0, 20)}-cluster-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "eks.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.cluster.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/AmazonEKSClusterPolicy"
}

resource "aws_eks_access_entry" "admin" {
  for_each = var.admin_role_arns

  cluster_name  = aws_eks_cluster.this.name
  principal_arn = each.value
}

resource "aws_eks_access_policy_association" "admin" {
  for_each = var.admin_role_arns

  cluster_name  = aws_eks_cluster.this.name
  principal_arn = each.value
  policy_arn    = "arn:${local.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"

  access_scope {
    type = "cluster"
  }

  depends_on = [aws_eks_access_entry.admin]
}

# What service accounts prove themselves with (IRSA): their tokens are signed by this issuer.
resource "aws_iam_openid_connect_provider" "this" {
  url            = aws_eks_cluster.this.identity[0].oidc[0].issuer
  client_id_list = ["sts.amazonaws.com"]
}

locals {
  oidc = trimprefix(aws_eks_cluster.this.identity[0].oidc[0].issuer, "https://")

  # Who may take a role: one service account each, and only with a token made for STS.
  trust = {
    for use, account in {
      ebs_csi = "kube-system:ebs-csi-controller-sa"
      archive = "${var.namespace}:${var.archive_service_account}"
      } : use => jsonencode({
        Version = "2012-10-17"
        Statement = [{
          Effect    = "Allow"
          Action    = "sts:AssumeRoleWithWebIdentity"
          Principal = { Federated = aws_iam_openid_connect_provider.this.arn }
          Condition = {
            StringEquals = {
              "${local.oidc}:aud" = "sts.amazonaws.com"
              "${local.oidc}:sub" = "system:serviceaccount:${account}"
            }
          }
        }]
    })
  }
}
