variable "region" {
  description = "AWS region."
  type        = string
  default     = "eu-central-1"
}

variable "availability_zones" {
  description = "Three zones of the region. Their order must not change later."
  type        = list(string)
  default     = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]

  validation {
    condition     = alltrue([for zone in var.availability_zones : startswith(zone, var.region)])
    error_message = "availability_zones are zones of the region."
  }
}

variable "name" {
  description = "Of the cluster, and the beginning of all other names."
  type        = string
  default     = "goqueue-dev"
}

variable "kubernetes_version" {
  description = "Minor version of the control plane and of the nodes."
  type        = string
  default     = "1.34"
}

variable "api_public_cidrs" {
  description = "Who may reach the Kubernetes API from the internet, as [\"203.0.113.7/32\"]. Empty: only the VPC."
  type        = list(string)
  default     = []
}

variable "admin_role_arns" {
  description = "IAM roles that administer the cluster, beside whoever creates it."
  type        = set(string)
  default     = []
}
