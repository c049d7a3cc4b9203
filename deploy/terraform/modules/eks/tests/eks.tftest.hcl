# terraform test: the module planned and applied against a provider that only pretends.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }

  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }

  mock_resource "aws_eks_cluster" {
    defaults = {
      identity = [{ oidc = [{ issuer = "https://oidc.eks.eu-central-1.amazonaws.com/id/ABC" }] }]
    }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/a-role" }
  }

  mock_resource "aws_iam_openid_connect_provider" {
    defaults = { arn = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/ABC" }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab" }
  }

  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:123456789012:log-group:a-group" }
  }

  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }

  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::goqueue-archive-123456789012" }
  }

  mock_resource "aws_ecr_repository" {
    defaults = { repository_url = "123456789012.dkr.ecr.eu-central-1.amazonaws.com/goqueue/goqueue" }
  }
}

variables {
  name               = "goqueue"
  availability_zones = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
}

run "by_default_zones_stand_by_themselves_and_all_is_closed_encrypted_and_kept" {
  assert {
    condition     = length(aws_subnet.private) == 3 && keys(aws_subnet.public) == keys(aws_subnet.private)
    error_message = "a private and a public subnet in each zone"
  }

  assert {
    condition     = keys(aws_nat_gateway.this) == keys(aws_subnet.public) && length(aws_route.nat) == 3
    error_message = "each zone has its own NAT gateway"
  }

  assert {
    condition     = length(aws_eks_node_group.this) == 3 && alltrue([for zone, group in aws_eks_node_group.this : startswith(group.node_group_name_prefix, zone) && length(group.subnet_ids) == 1 && group.scaling_config[0].desired_size == 1])
    error_message = "a managed node group in each zone"
  }

  assert {
    condition     = length(distinct(concat([for subnet in aws_subnet.private : subnet.cidr_block], [for subnet in aws_subnet.public : subnet.cidr_block]))) == 6
    error_message = "no two subnets have the same addresses"
  }

  assert {
    condition     = alltrue([for subnet in aws_subnet.public : !subnet.map_public_ip_on_launch])
    error_message = "nothing gets a public address by itself"
  }

  assert {
    condition     = aws_eks_cluster.this.vpc_config[0].endpoint_private_access && !aws_eks_cluster.this.vpc_config[0].endpoint_public_access
    error_message = "without CIDR blocks the API is the VPC's only"
  }

  assert {
    condition     = toset(aws_eks_cluster.this.encryption_config[0].resources) == toset(["secrets"]) && aws_eks_cluster.this.encryption_config[0].provider[0].key_arn == aws_kms_key.cluster.arn
    error_message = "secrets are encrypted by our key"
  }

  assert {
    condition     = length(aws_eks_cluster.this.enabled_cluster_log_types) == 5 && aws_cloudwatch_log_group.cluster.retention_in_days == 365
    error_message = "all five logs of the control plane, for a year"
  }

  assert {
    condition     = aws_launch_template.nodes.metadata_options[0].http_tokens == "required" && aws_launch_template.nodes.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "pods don't get at the node's role"
  }

  assert {
    condition     = alltrue([for key in [aws_kms_key.cluster, aws_kms_key.data] : key.enable_key_rotation])
    error_message = "keys rotate"
  }

  assert {
    condition     = jsondecode(aws_eks_addon.before_nodes["vpc-cni"].configuration_values).enableNetworkPolicy == "true"
    error_message = "network policies are enforced"
  }

  assert {
    condition     = aws_s3_bucket.archive.bucket == "goqueue-archive-123456789012" && !aws_s3_bucket.archive.force_destroy
    error_message = "a bucket of the account's, which no destroy empties"
  }

  assert {
    condition     = alltrue([for block in [aws_s3_bucket_public_access_block.archive] : block.block_public_acls && block.block_public_policy && block.ignore_public_acls && block.restrict_public_buckets])
    error_message = "nobody outside"
  }

  assert {
    condition     = aws_s3_bucket_versioning.archive.versioning_configuration[0].status == "Enabled"
    error_message = "versioned"
  }

  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.archive.rule).apply_server_side_encryption_by_default[0].kms_master_key_id == aws_kms_key.data.arn
    error_message = "encrypted by our key"
  }

  assert {
    condition     = length(aws_s3_bucket_lifecycle_configuration.archive.rule[1].expiration) == 0 && one(aws_s3_bucket_lifecycle_configuration.archive.rule[1].transition).days == 90
    error_message = "cold, and kept"
  }

  assert {
    condition     = jsondecode(aws_s3_bucket_policy.archive.policy).Statement[0].Effect == "Deny"
    error_message = "only by TLS"
  }

  assert {
    condition     = yamldecode(output.helm_values).image.repository == aws_ecr_repository.goqueue.repository_url && !can(yamldecode(output.helm_values).replicaCount)
    error_message = "the chart's values name the image, and leave the number of brokers to who scales them"
  }

  assert {
    condition     = yamldecode(output.helm_values).persistence.createStorageClass.parameters.kmsKeyId == aws_kms_key.data.arn && yamldecode(output.helm_values).persistence.createStorageClass.reclaimPolicy == "Retain"
    error_message = "volumes are encrypted by our key, and kept when their claim goes"
  }

  assert {
    condition     = yamldecode(output.helm_values).archive.serviceAccount.annotations["eks.amazonaws.com/role-arn"] == aws_iam_role.archive.arn
    error_message = "the archive job takes its role"
  }
}

run "options_do_what_they_say" {
  variables {
    single_nat_gateway      = true
    api_public_cidrs        = ["203.0.113.7/32"]
    admin_role_arns         = ["arn:aws:iam::123456789012:role/operators"]
    namespace               = "queues"
    archive_service_account = "archivist"
    archive_expire_days     = 400
    destroy_data            = true
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 1 && length(aws_route.nat) == 3
    error_message = "one gateway, and each zone's nodes reach the internet"
  }

  assert {
    condition     = aws_eks_cluster.this.vpc_config[0].endpoint_public_access && aws_eks_cluster.this.vpc_config[0].public_access_cidrs == toset(["203.0.113.7/32"])
    error_message = "only those addresses"
  }

  assert {
    condition     = endswith(aws_eks_access_policy_association.admin["arn:aws:iam::123456789012:role/operators"].policy_arn, "AmazonEKSClusterAdminPolicy")
    error_message = "the role administers the cluster"
  }

  assert {
    condition = jsondecode(aws_iam_role.archive.assume_role_policy).Statement[0].Condition.StringEquals == {
      "oidc.eks.eu-central-1.amazonaws.com/id/ABC:aud" = "sts.amazonaws.com"
      "oidc.eks.eu-central-1.amazonaws.com/id/ABC:sub" = "system:serviceaccount:queues:archivist"
    }
    error_message = "the archive's role is the archive job's"
  }

  assert {
    condition     = jsondecode(aws_iam_role.ebs_csi.assume_role_policy).Statement[0].Condition.StringEquals["oidc.eks.eu-central-1.amazonaws.com/id/ABC:sub"] == "system:serviceaccount:kube-system:ebs-csi-controller-sa"
    error_message = "the driver's role is the driver's"
  }

  assert {
    condition     = alltrue(flatten([for statement in jsondecode(aws_iam_role_policy.archive.policy).Statement : [for resource in statement.Resource : startswith(resource, "arn:aws:s3:::goqueue-archive-") || resource == aws_kms_key.data.arn]]))
    error_message = "the archive job reaches its bucket, its key and nothing else"
  }

  assert {
    condition     = aws_eks_addon.ebs_csi.service_account_role_arn == aws_iam_role.ebs_csi.arn
    error_message = "the driver has its role"
  }

  assert {
    condition     = one(aws_s3_bucket_lifecycle_configuration.archive.rule[1].expiration).days == 400
    error_message = "cold, then gone"
  }

  assert {
    condition     = aws_s3_bucket.archive.force_destroy && aws_ecr_repository.goqueue.force_delete && yamldecode(output.helm_values).persistence.createStorageClass.reclaimPolicy == "Delete"
    error_message = "bucket, images and volumes go along"
  }
}

run "what_would_go_wrong_later_is_refused_now" {
  command = plan

  variables {
    name                = "GoQueue_Prod"
    vpc_cidr            = "10.0.0.0/24"
    availability_zones  = ["eu-central-1a", "eu-central-1b", "eu-central-1a"]
    api_public_cidrs    = ["203.0.113.7/32", "0.0.0.0/0"]
    kubernetes_version  = "1.28"
    nodes_per_zone      = { min = 2, desired = 1, max = 3 }
    node_ami_type       = "BOTTLEROCKET_x86_64"
    archive_expire_days = 30
  }

  expect_failures = [
    var.name,
    var.vpc_cidr,
    var.availability_zones,
    var.api_public_cidrs,
    var.kubernetes_version,
    var.nodes_per_zone,
    var.node_ami_type,
    var.archive_expire_days,
  ]
}
