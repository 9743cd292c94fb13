// Package acitest is Azure Resource Manager with Azure Container Instances, as far as package
// aci calls them: the fake server of Azure's SDK, which finds and decodes requests, extended
// by what the service does with them. It refuses what the service is documented to refuse.
package acitest
