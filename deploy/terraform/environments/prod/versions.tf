terraform {
  required_version = ">= 1.9"

  # The bucket is made beforehand, once, and named at init: -backend-config=bucket=... (deploy.sh --state-bucket does).
  backend "s3" {
    key     = "goqueue/prod.tfstate"
    encrypt = true
  }

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.100, < 6.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = "goqueue", environment = "prod", "managed-by" = "terraform" }
  }
}
