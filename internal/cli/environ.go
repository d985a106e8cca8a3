package cli

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/internal/configfile"
)

// credentials are the variables from which Azure's libraries and tools take credentials, besides
// those that a pattern below finds.
var credentials = []string{
	"IDENTITY_HEADER", "MSI_SECRET", "AzureWebJobsStorage", "CREDENTIALS_DIRECTORY",
}

var (
	// ofStorage are the variables of Azure's command line for storage: keys, signatures and connection
	// strings, which no worker needs.
	ofStorage = regexp.MustCompile(`^AZURE_STORAGE_`)
	// ofIdentity are AZURE_CLIENT_SECRET, AZURE_PASSWORD, AZURE_FEDERATED_TOKEN_FILE and the like, but
	// not AZURE_CLIENT_ID, AZURE_TENANT_ID or AZURE_REGION.
	ofIdentity = regexp.MustCompile(`^AZURE_.*(SECRET|PASSWORD|TOKEN|CERTIFICATE|CREDENTIAL|_KEY)`)
	// ofFlags are the variables that give this process its flags, such as a header with a token; a
	// command that a child runs has its own.
	ofFlags = regexp.MustCompile(`^QUEUEPUMP_`)
)

// hides reports whether children must not see a variable: the configuration refers to it, it is a
// credential of Azure, or it holds a key or signature of the configured accounts.
func hides(file *configfile.File) func(name, value string) bool {
	secrets := file.Secrets()
	return func(name, value string) bool {
		return slices.Contains(file.Variables, name) || slices.Contains(credentials, name) ||
			ofStorage.MatchString(name) || ofIdentity.MatchString(name) ||
			ofFlags.MatchString(name) && name != configfile.PathVariable ||
			slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(value, secret) })
	}
}

// ChildEnv is the environment for children: ours without what might open an account, but with the
// variables to keep. A task's work does not need the accounts.
func ChildEnv(file *configfile.File, keep []string) []string {
	hidden := hides(file)
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return hidden(name, value) && !slices.Contains(keep, name)
	})
}

var (
	// linePart is a character behind a backslash, a text in quotes, a text without, or the blanks
	// between words.
	linePart = regexp.MustCompile(
		`(?s)\\.|'[^']*'|"(?:[^"\\]|\\.)*"|[^ \t\n'"\\]+|[ \t\n]+`,
	)
	inQuotes  = regexp.MustCompile("\\\\(?:\n|([$`\"\\\\]))")
	plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)
)

// Split cuts a command line into words, as a shell would with quotes and
// backslashes but without doing anything else: no variables, no patterns, no
// pipes. For those write sh -c '...'.
func Split(command string) (words []string, err error) {
	size, word, begun := 0, "", false
	for _, part := range linePart.FindAllString(command, -1) {
		size += len(part)
		switch part[0] {
		case ' ', '\t', '\n':
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
			continue
		case '\'':
			part = part[1 : len(part)-1]
		case '"':
			part = inQuotes.ReplaceAllString(part[1:len(part)-1], "$1")
		case '\\':
			if part = part[1:]; part == "\n" { // the line goes on
				continue
			}
		}
		word, begun = word+part, true
	}
	if begun {
		words = append(words, word)
	}
	switch {
	case size < len(command):
		return nil, errors.New("the command's quotes do not match, or it ends with a backslash")
	case len(words) == 0:
		return nil, errors.New("the command is empty")
	}
	return words, nil
}

// Join writes words as a command line that [Split] and a shell cut into the same ones.
func Join(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if !plainWord.MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
