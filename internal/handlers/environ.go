package handlers

import (
	"os"
	"slices"
	"strings"
)

// credentials are the variables that Azure's libraries and tools take
// credentials from.
var credentials = []string{
	"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_CLIENT_CERTIFICATE_PASSWORD",
	"AZURE_PASSWORD", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_HEADER", "MSI_SECRET",
	"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
}

// Environ is the environment for children: ours without the variables that
// the configuration refers to and without credentials for Azure, but with those to keep.
// Whatever does a task's work has no business with the accounts.
func Environ(secret, keep []string) []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return (slices.Contains(secret, name) || slices.Contains(credentials, name)) && !slices.Contains(keep, name)
	})
}
