// This file makes the input files of tests.

package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/queuepump/queuepump/internal/proof"
)

// Write writes a file into a directory of the test's own and gives its path.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	proof.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Append adds a text to the end of a file.
func Append(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	proof.Must(t, err)
	_, err = f.WriteString(text)
	proof.Must(t, errors.Join(err, f.Close()))
}

// Numbered is the lines of the numbers from from to to, of 50 bytes each.
func Numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%049d\n", i)
	}
	return b.String()
}

// Gzipped is a text as one gzip member.
func Gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.String()
}

// Zstded is a text as one zstd frame.
func Zstded(text string) string {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}
