package main

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
)

// fileSum is the worker's result. A path that is not UTF-8 is in PathBase64,
// as JSON cannot hold it.
type fileSum struct {
	Path       string `json:"path,omitempty"`
	PathBase64 []byte `json:"pathBase64,omitempty"`
	SHA256     string `json:"sha256"`
	Bytes      int64  `json:"bytes"`
}

// sha256Worker is a child for `processor run --exec`: the work that `loadtest
// try` has done, and a model for workers in any language.
func sha256Worker() *cobra.Command {
	return &cobra.Command{
		Use:   "sha256-worker",
		Short: "A worker for `processor run --exec`: the SHA-256 of the file that a task names",
		Args:  cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error {
			return sumFiles(cmd.InOrStdin(), cmd.OutOrStdout())
		}),
	}
}

func sumFiles(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out) // a line an answer
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the end of the input is the end of the work
		}
		if err != nil {
			return err
		}
		var task struct {
			Seq        uint64 `json:"seq"`
			Body       string `json:"body"`
			BodyBase64 []byte `json:"bodyBase64"` // instead of a body that is not UTF-8
		}
		answer := map[string]any{}
		if err := json.Unmarshal(line, &task); err != nil {
			answer["reject"], answer["error"] = true, err.Error()
		} else if sum, err := sumFile(cmp.Or(task.Body, string(task.BodyBase64))); errors.Is(err,
			fs.ErrNotExist) {
			answer["reject"], answer["error"] = true, err.Error()
		} else if err != nil {
			answer["error"] = err.Error() // may pass: tried again
		} else {
			answer["ok"], answer["result"] = true, sum
		}
		answer["seq"] = task.Seq
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

func sumFile(path string) (fileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fileSum{}, fmt.Errorf("read %s: %w", path, err)
	}
	sum := fileSum{SHA256: hex.EncodeToString(h.Sum(nil)), Bytes: n}
	if utf8.ValidString(path) {
		sum.Path = path
	} else {
		sum.PathBase64 = []byte(path)
	}
	return sum, nil
}
