variable "name" {
  description = "Names the EKS cluster and everything around it. Also the beginning of the archive bucket's name, so no dots and no capitals."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,38}[a-z0-9]$", var.name))
    error_message = "name is 3 to 40 small letters, digits and hyphens, begins with a letter and does not end with a hyphen."
  }
}

variable "kubernetes_version" {
  description = "Minor version of the control plane and of the nodes. One minor version up at a time."
  type        = string
  default     = "1.34"

  validation {
    condition     = can(regex("^1\\.(29|[3-9][0-9])$", var.kubernetes_version))
    error_message = "kubernetes_version is 1.29 or newer, as 1.34: what the chart is tested with."
  }
}

variable "vpc_cidr" {
  description = "The VPC's addresses, a /16: three private subnets of 4,094 (pods take one each), three public ones of 254."
  type        = string
  default     = "10.40.0.0/16"

  validation {
    condition     = can(cidrhost(var.vpc_cidr, 0)) && endswith(var.vpc_cidr, "/16")
    error_message = "vpc_cidr is an IPv4 block with 16 bits, as 10.40.0.0/16."
  }
}

variable "availability_zones" {
  description = "Exactly three zones, one replica of each partition in each. Named, not looked up: another answer would move subnets."
  type        = list(string)

  validation {
    condition     = length(var.availability_zones) == 3 && length(distinct(var.availability_zones)) == 3
    error_message = "availability_zones names three different zones."
  }
}

variable "single_nat_gateway" {
  description = "One NAT gateway for all zones: a third of the price; when its zone is away, no node can pull an image. False: one per zone."
  type        = bool
  default     = false
}

variable "api_public_cidrs" {
  description = "Who may reach the Kubernetes API from the internet. Empty: only the VPC, and what is connected with it."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.api_public_cidrs : can(cidrhost(cidr, 0)) && !endswith(cidr, "/0")])
    error_message = "api_public_cidrs are CIDR blocks, and none of them is the whole internet."
  }
}

variable "admin_role_arns" {
  description = "IAM roles that administer the cluster through kubectl and helm, beside whoever creates it."
  type        = set(string)
  default     = []
}

variable "nodes_per_zone" {
  description = "Size of each zone's node group. A broker's volume lives in one zone, so each zone needs a node for each broker it is to hold."
  type = object({
    min     = number
    desired = number
    max     = number
  })
  default = { min = 1, desired = 1, max = 3 }

  validation {
    condition     = 1 <= var.nodes_per_zone.min && var.nodes_per_zone.min <= var.nodes_per_zone.desired && var.nodes_per_zone.desired <= var.nodes_per_zone.max
    error_message = "nodes_per_zone: 1 <= min <= desired <= max."
  }
}

variable "node_instance_types" {
  description = "A broker uses one core, and a little of a second one to sync."
  type        = list(string)
  default     = ["m7i.large"]
}

variable "node_ami_type" {
  description = "Amazon Linux 2023; AL2023_ARM_64_STANDARD goes with Graviton types and an image built for arm64."
  type        = string
  default     = "AL2023_x86_64_STANDARD"

  validation {
    condition     = startswith(var.node_ami_type, "AL2023_")
    error_message = "node_ami_type begins with AL2023_: the nodes' root device is named as there."
  }
}

variable "node_disk_gib" {
  description = "Root volume of a node: images and logs. Messages are on volumes of their own."
  type        = number
  default     = 40
}

variable "log_retention_days" {
  description = "Of the control plane's logs and the VPC's flow logs."
  type        = number
  default     = 365
}

variable "namespace" {
  description = "Kubernetes namespace the chart is installed into: the archive's role trusts a service account there."
  type        = string
  default     = "goqueue"
}

variable "archive_service_account" {
  description = "Service account of the archive job, which may use the archive bucket."
  type        = string
  default     = "goqueue-archive"
}

variable "archive_cold_days" {
  description = "Age at which archived files move to Glacier Instant Retrieval: as fast to read, dearer to."
  type        = number
  default     = 90

  validation {
    condition     = var.archive_cold_days >= 30
    error_message = "archive_cold_days is 30 or more."
  }
}

variable "archive_expire_days" {
  description = "Age at which archived files are deleted; 0: never."
  type        = number
  default     = 0

  validation {
    condition     = var.archive_expire_days == 0 || var.archive_expire_days > var.archive_cold_days
    error_message = "archive_expire_days is 0, or more than archive_cold_days."
  }
}

variable "destroy_data" {
  description = "True: terraform destroy deletes the archive bucket with all in it, and all images. False: it refuses while there is something in them."
  type        = bool
  default     = false
}
