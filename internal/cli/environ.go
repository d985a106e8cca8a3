package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kballard/go-shellquote"
)

// credentials are the variables that Azure's libraries and tools take
// credentials from.
var credentials = []string{
	"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_CLIENT_CERTIFICATE_PASSWORD",
	"AZURE_PASSWORD", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_HEADER", "MSI_SECRET",
	"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
}

// Secrets are the variables that children must not see: those that the
// configuration refers to, and Azure's credentials.
func Secrets(configured []string) []string { return append(slices.Clone(configured), credentials...) }

// ChildEnv is the environment for children: ours without the variables that
// the configuration refers to and without credentials for Azure, but with those to keep.
// Whatever does a task's work has no business with the accounts.
func ChildEnv(configured, keep []string) []string {
	secret := Secrets(configured)
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(secret, name) && !slices.Contains(keep, name)
	})
}

// Split cuts a command line into words, as a shell would with quotes and
// backslashes but without doing anything else: no variables, no patterns, no
// pipes. Whoever wants those writes sh -c '...'.
func Split(command string) ([]string, error) {
	words, err := shellquote.Split(command)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the command's quotes do not match: %w", err)
	case len(words) == 0:
		return nil, errors.New("the command is empty")
	}
	return words, nil
}
