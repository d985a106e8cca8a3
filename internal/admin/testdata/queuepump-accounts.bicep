// Storage accounts for queuepump v1.2.3 and the roles that it needs, made by:
// distributor generate bicep
//   az deployment group create --resource-group GROUP --template-file queuepump-accounts.bicep
// The first account is the control account unless pump.yaml says otherwise.
param location string = 'westeurope'
param accountNames array = [
  'pumpone'
  'pumptwo'
]

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'cities'
  location: location
}

resource accounts 'Microsoft.Storage/storageAccounts@2023-01-01' = [for name in accountNames: {
  name: name
  location: location
  kind: 'StorageV2'
  sku: { name: 'Standard_LRS' }
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
  }
}]

// Storage Queue Data Contributor
var queueRole = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '974c5e8b-45b9-4653-ba55-5f855dd0fbe8')
// Storage Table Data Contributor
var tableRole = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3')

resource queues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, i) in accountNames: {
  name: guid(resourceGroup().id, name, identity.id, queueRole)
  scope: accounts[i]
  properties: {
    roleDefinitionId: queueRole
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}]

resource tables 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for (name, i) in accountNames: {
  name: guid(resourceGroup().id, name, identity.id, tableRole)
  scope: accounts[i]
  properties: {
    roleDefinitionId: tableRole
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}]

output clientId string = identity.properties.clientId
// For `accounts:` in pump.yaml.
output endpoints array = [for (name, i) in accountNames: accounts[i].properties.primaryEndpoints.queue]
