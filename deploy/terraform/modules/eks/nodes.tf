# One managed node group per zone: a group over three zones may grow in a zone where no broker's volume is.

resource "aws_launch_template" "nodes" {
  name_prefix = "${var.name}-"

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_type           = "gp3"
      volume_size           = var.node_disk_gib
      encrypted             = true # by the account's default key: with one of ours no node could start before the account's autoscaling role is in its policy
      delete_on_termination = true
    }
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1 # pods don't get at the node's role
  }

  tag_specifications {
    resource_type = "instance"
    tags          = { Name = var.name }
  }
}

resource "aws_eks_node_group" "this" {
  for_each = toset(local.zones)

  cluster_name           = aws_eks_cluster.this.name
  node_group_name_prefix = "${each.key}-"
  node_role_arn          = aws_iam_role.node.arn
  subnet_ids             = [aws_subnet.private[each.key].id]

  version        = var.kubernetes_version
  ami_type       = var.node_ami_type
  capacity_type  = "ON_DEMAND"
  instance_types = var.node_instance_types

  launch_template {
    id      = aws_launch_template.nodes.id
    version = aws_launch_template.nodes.latest_version
  }

  scaling_config {
    min_size     = var.nodes_per_zone.min
    desired_size = var.nodes_per_zone.desired
    max_size     = var.nodes_per_zone.max
  }

  lifecycle {
    create_before_destroy = true
    ignore_changes        = [scaling_config[0].desired_size] # an autoscaler's, once there is one
  }

  depends_on = [
    aws_iam_role_policy_attachment.node,
    aws_eks_addon.before_nodes,
    aws_route.nat,
    aws_route_table_association.private,
  ]
}

resource "aws_iam_role" "node" {
  name_prefix = "${substr(var.name, 0, 20)}-node-"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset(["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"])

  role       = aws_iam_role.node.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.value}"
}
