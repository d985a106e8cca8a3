package configfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// filePrefix marks a value that is taken from a file: ${file:PATH}.
const filePrefix = "file:"

// maxSecret bounds such a file: a connection string has some 200 bytes.
const maxSecret = 16 << 10

// besideCredentials puts a relative path below the folder of credentials that systemd gives a
// service, if it gives one.
func besideCredentials(path string) string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && !filepath.IsAbs(path) {
		return filepath.Join(dir, path)
	}
	return path
}

// readSecret gives the content of a file without the line end that editors add. A relative path is
// below the credentials that systemd gives a service, or else below where the process runs. The
// errors never hold a value.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", errors.New("${file:} names no file")
	}
	path = besideCredentials(path)
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("the file %s cannot be opened: %s", path, cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("the file %s cannot be read: %s", path, cause(err))
	}
	value := strings.TrimRight(string(text), "\r\n")
	switch {
	case len(text) > maxSecret:
		return "", fmt.Errorf("the file %s is larger than %d KiB", path, maxSecret>>10)
	case value == "":
		return "", fmt.Errorf("the file %s is empty", path)
	case strings.ContainsAny(value, "\r\n\x00"):
		return "", fmt.Errorf("the file %s has more than one line", path)
	}
	return value, nil
}
