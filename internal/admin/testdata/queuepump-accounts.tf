# Storage accounts for queuepump v1.2.3 and the roles that it needs, made by:
# distributor generate terraform
#   terraform init && terraform apply -var resource_group=GROUP
# The first account is the control account unless pump.yaml says otherwise.
terraform {
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.0"
    }
  }
}

provider "azurerm" {
  features {}
  storage_use_azuread = true
}

variable "resource_group" {
  type = string
}

variable "location" {
  type    = string
  default = "westeurope"
}

variable "accounts" {
  type = set(string)
  default = [
    "pumpone",
    "pumptwo",
  ]
}

locals {
  roles = ["Storage Queue Data Contributor", "Storage Table Data Contributor"]
}

resource "azurerm_user_assigned_identity" "queuepump" {
  name                = "cities"
  location            = var.location
  resource_group_name = var.resource_group
}

resource "azurerm_storage_account" "queuepump" {
  for_each                        = var.accounts
  name                            = each.value
  location                        = var.location
  resource_group_name             = var.resource_group
  account_kind                    = "StorageV2"
  account_tier                    = "Standard"
  account_replication_type        = "LRS"
  min_tls_version                 = "TLS1_2"
  https_traffic_only_enabled      = true
  allow_nested_items_to_be_public = false
  shared_access_key_enabled       = false
}

resource "azurerm_role_assignment" "queuepump" {
  for_each             = { for pair in setproduct(var.accounts, local.roles) : join(" ", pair) => pair }
  scope                = azurerm_storage_account.queuepump[each.value[0]].id
  role_definition_name = each.value[1]
  principal_id         = azurerm_user_assigned_identity.queuepump.principal_id
}

output "client_id" {
  value = azurerm_user_assigned_identity.queuepump.client_id
}

# For `accounts:` in pump.yaml.
output "endpoints" {
  value = [for name in sort(tolist(var.accounts)) : azurerm_storage_account.queuepump[name].primary_queue_endpoint]
}
